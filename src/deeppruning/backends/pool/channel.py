"""Messages between a pool and its workers; the pool's end never waits for a worker that may be hung."""

import socket
import struct
from collections import deque
from typing import BinaryIO

_LENGTH = struct.Struct("<Q")
_CHUNK = 2**20


class Channel:
    """The pool's end: takes what has come and leaves what cannot be sent yet for the next `push`."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unsent: deque[memoryview] = deque()
        self._come = bytearray()
        self.ended = False  # nobody is at the other end any more

    def fileno(self) -> int:
        """For selectors."""
        return self._end.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether the other end has yet to take some of what was sent."""
        return bool(self._unsent)

    def send(self, message: bytes) -> None:
        """Send a message, or as much of it as the other end takes at once."""
        self._unsent.extend((memoryview(_LENGTH.pack(len(message))), memoryview(message)))
        self.push()

    def push(self) -> None:
        """Go on with sending."""
        try:
            while self._unsent:
                sent = self._end.send(self._unsent[0])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True

    def receive(self) -> bytes | None:
        """The next message, if all of it has come."""
        try:
            while chunk := self._end.recv(_CHUNK):
                self._come += chunk
            self.ended = True
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        start = _LENGTH.size
        if len(self._come) < start:
            return None
        stop = start + _LENGTH.unpack_from(self._come)[0]
        if len(self._come) < stop:
            return None
        message = bytes(memoryview(self._come)[start:stop])
        del self._come[:stop]
        return message

    def close(self) -> None:
        """Let go of this end."""
        self._end.close()


def write_message(end: BinaryIO, message: bytes) -> None:
    """Send from a worker, however long that takes."""
    end.write(_LENGTH.pack(len(message)))
    end.write(message)
    end.flush()


def read_message(end: BinaryIO) -> bytes | None:
    """Wait in a worker for the next message; None when there will be no more."""
    head = end.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = end.read(length)
    return message if len(message) == length else None
