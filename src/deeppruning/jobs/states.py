"""The state of a fine-tuning between its rounds: bytes of the task's own, kept with a checksum."""

import hashlib
from pathlib import Path

from deeppruning.errors import RunError
from deeppruning.system.files import write_atomically

_MARK = b"deeppruning-state/1\n"  # files of older versions have neither mark nor checksum
_DIGEST = hashlib.sha256().digest_size


def write_state(path: Path, state: bytes) -> None:
    """Keep a state, whole or not at all."""
    write_atomically(path, _MARK + hashlib.sha256(state).digest() + state)


def read_state(path: Path, *, marked: bool = False) -> bytes:
    """The state that was kept; one that has changed since is refused, `marked` also one without checksum."""
    if not path.is_file():  # a pipe would be waited for
        raise RunError(f"{path} is damaged: it is not a file; delete it and resume the run")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    if not content.startswith(_MARK):
        if marked:
            raise RunError(f"{path} is damaged: it does not begin as it should")
        return content
    start = len(_MARK) + _DIGEST
    if hashlib.sha256(content[start:]).digest() != content[len(_MARK) : start]:
        raise RunError(
            f"{path} is damaged: it does not match its own checksum; delete it and resume the run, which "
            "then repeats this fine-tuning from its start"
        )
    return content[start:]
