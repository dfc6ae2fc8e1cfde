"""The life of a pool worker: unpack the function and its context once, then answer item after item."""

import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
from typing import BinaryIO, cast

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.backends.base import attempt
from deeppruning.backends.pool.channel import read_message, write_message

# Run with `python -c`, so that the user's script is never imported again and needs no main guard. The
# search path is the parent's, because that is where the user's modules were found. Before all else Linux
# is asked (PR_SET_PDEATHSIG) for a signal at the parent's end, which a stopped process obeys as well.
BOOTSTRAP = """
import ctypes, json, sys
path, farewell, *numbers = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(farewell), 0, 0, 0)
sys.path[:] = json.loads(path)
from deeppruning.backends.pool.worker import serve
serve(*map(int, numbers))
"""

_LOOK_FOR_PARENT_EVERY = 0.5


def farewell_signal() -> int:
    """What a worker started by this thread shall be sent when the thread ends, which is what Linux looks at.

    The main thread ends with the process. Any other may end long before, so that its workers are only
    woken, should they be stopped, to see for themselves whether the process is gone.
    """
    return signal.SIGKILL if threading.get_native_id() == os.getpid() else signal.SIGCONT


def serve(channel_fd: int, parcel_fd: int, parent: int, threads: int) -> None:
    """Answer the parent's items over the channel until it closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    channel = cast(BinaryIO, socket.socket(fileno=channel_fd).makefile("rwb"))
    try:
        import torch

        from deeppruning.backends.parcel import unpack

        torch.set_num_threads(threads)
        function, context = unpack(parcel_fd)
        os.close(parcel_fd)
    except Exception:
        write_message(channel, pickle.dumps(traceback.format_exc()))
        sys.exit(1)
    write_message(channel, pickle.dumps(None))
    while (request := read_message(channel)) is not None:
        answer = answer_item(function, context, request)
        write_message(channel, answer)


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
