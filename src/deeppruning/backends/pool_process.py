"""What runs in a process of a pool: unpack the function and its context once, then answer item after item."""

import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import BinaryIO, cast

from deeppruning.backends.base import answer_item

LENGTH = struct.Struct("<Q")  # of the message that follows it
# Run with `python -c`, so that the user's script is not imported again and needs no main guard. The import
# path is the parent's, where the user's modules were found. First of all Linux is asked (PR_SET_PDEATHSIG) to
# send a signal when the parent ends, which works for a stopped process as well.
BOOTSTRAP = """
import ctypes, json, sys
path, farewell, *numbers = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(farewell), 0, 0, 0)
sys.path[:] = json.loads(path)
from deeppruning.backends.pool_process import serve
serve(*map(int, numbers))
"""

_LOOK_FOR_PARENT_EVERY = 0.5


def serve(channel_fd: int, parcel_fd: int, parent: int, threads: int) -> None:
    """Answer the parent's items until it closes the socket or is gone."""
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
        write_message(channel, answer_item(function, context, request))


def write_message(end: BinaryIO, message: bytes) -> None:
    """Send a message, however long that takes."""
    end.write(LENGTH.pack(len(message)))
    end.write(message)
    end.flush()


def read_message(end: BinaryIO) -> bytes | None:
    """Wait for the next message; None if there will be no more."""
    head = end.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = end.read(length)
    return message if len(message) == length else None


def _leave_with(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of an item."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT_EVERY)
    os._exit(1)
