"""Code that a run folder names is executed only if this user made the run.

A run folder is data and may come from anyone, but its config.toml may name code: a network, a data set or an
objective written by the user. Such names are signed when a run is created, with a key that never leaves the
user's state folder, as Jupyter signs notebooks: a folder of someone else, or one in which the names were
changed, has no valid signature.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from deeppruning.errors import RunError
from deeppruning.models.libraries import is_library_name

KEY_BYTES = 32
_WHERE = {"model": ("model", "spec"), "data": ("data", "data"), "objective": ("objective", "spec")}


def state_folder() -> Path:
    """The folder for the state of a user: below XDG_STATE_HOME, or where the system keeps such folders."""
    if os.environ.get("XDG_STATE_HOME"):
        base = Path(os.environ["XDG_STATE_HOME"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif os.environ.get("LOCALAPPDATA"):
        base = Path(os.environ["LOCALAPPDATA"])
    else:
        base = Path.home() / ".local" / "state"
    return base / "deeppruning"


def code_in(config: Mapping[str, Any]) -> dict[str, str]:
    """The code that a run's options name, by kind; names of built-in networks and data sets are no code.

    Nor are networks of timm and torchvision, which are built by the names that these libraries list.

    >>> code_in({"model": {"spec": "net.py:make"}, "data": {"data": "digits"}})
    {'model': 'net.py:make'}
    """
    code = {}
    for kind, (table, key) in _WHERE.items():
        name = config.get(table, {}).get(key)
        if isinstance(name, str) and (":" in name or kind == "objective") and not is_library_name(name):
            code[kind] = name
    # A cluster can send code to a program that joins it.
    run = config.get("run", {})
    addresses = {key.replace("_", "-"): str(value) for key, value in run.items() if key.endswith("_address")}
    return code | addresses


def sign(config: Mapping[str, Any]) -> str | None:
    """A signature of the code that a run names; None if it names none, or if there is no key.

    A home folder that cannot be written must not stop a run: resuming it then takes --trust-run.
    """
    if not code_in(config):
        return None
    with contextlib.suppress(OSError, RuntimeError):  # the latter if there is no home folder
        return _signature_of_code(_make_key(state_folder()), config)
    return None


def is_signed(config: Mapping[str, Any], signature: Any) -> bool:
    """Whether this user's key signed exactly the code that these options name."""
    try:
        key = (state_folder() / "key").read_bytes()
    except (OSError, RuntimeError):
        return False
    whole = len(key) == KEY_BYTES and isinstance(signature, str) and signature.isascii()
    return whole and hmac.compare_digest(_signature_of_code(key, config), signature)


def refuse_foreign_code(
    path: Path, config: Mapping[str, Any], signature: Any, kinds: Collection[str]
) -> None:
    """Raise if options that this user did not sign name code of one of these kinds."""
    used = {kind: name for kind, name in code_in(config).items() if kind in kinds}
    if not used or is_signed(config, signature):
        return
    listed = ", ".join(f"{kind} {name!r}" for kind, name in used.items())
    again = " ".join(f"--{kind} ..." for kind in used)
    raise RunError(
        f"{path} names code to run ({listed}), but you did not create it on this machine, or it was changed "
        f"since, or {state_folder()} could not be written at the time. Nothing was run. If you trust its "
        f"author, pass --trust-run; or name the code yourself: {again}"
    )


def _signature_of_code(key: bytes, config: Mapping[str, Any]) -> str:
    """The signature of all that decides what is executed: names, the network's options, the import folder."""
    signed = {
        "names": code_in(config),
        "options": config.get("model", {}).get("options", {}),
        "folder": config.get("code", {}).get("folder"),
    }
    text = json.dumps(signed, sort_keys=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _make_key(folder: Path) -> bytes:
    """The user's key, created at the first call; two processes at once end up with the same key."""
    path = folder / "key"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = folder / f"key.{secrets.token_hex(4)}"
        try:
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(handle, secrets.token_bytes(KEY_BYTES))
            os.close(handle)
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(f"{path} is damaged")
    return key
