"""The life of a pool worker: unpack the function and its context once, then answer item after item."""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.backends.base import attempt

# Run with `python -c`, so that the user's script is never imported again and needs no main guard. The
# search path is the parent's, because that is where the user's modules were found.
BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from deeppruning.backends.worker import serve; serve(*map(int, sys.argv[2:]))"
)

_LOOK_FOR_PARENT_EVERY = 0.5


def serve(channel_fd: int, parcel_fd: int, parent: int, threads: int) -> None:
    """Answer the parent's items over the channel until it closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    channel = Connection(channel_fd)
    try:
        import torch

        from deeppruning.backends.parcel import unpack

        torch.set_num_threads(threads)
        function, context = unpack(parcel_fd)
        os.close(parcel_fd)
    except Exception:
        channel.send_bytes(pickle.dumps(traceback.format_exc()))
        sys.exit(1)
    channel.send_bytes(pickle.dumps(None))
    while True:
        try:
            request = channel.recv_bytes()
        except EOFError:
            return
        channel.send_bytes(answer_item(function, context, request))


def answer_item(function: object, context: object, request: bytes) -> bytes:
    """Run the function on a pickled item: its value or failure and the seconds it took, pickled."""
    try:
        item = pickle.loads(request)
    except Exception:
        return pickle.dumps((None, traceback.format_exc(), 0.0))
    value, failure, seconds = attempt(function, context, item)  # type: ignore[arg-type]
    try:
        # cloudpickle, because the value's class may live in the user's script.
        return bytes(cloudpickle.dumps((value, failure, seconds)))
    except Exception:
        return pickle.dumps((None, traceback.format_exc(), seconds))


def _leave_with(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of an item."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT_EVERY)
    os._exit(1)
