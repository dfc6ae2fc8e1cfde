"""Whose run is it: what a folder names to be executed is executed only in runs that this user made.

A run folder is data, and may come from anyone; but its config.toml names the code of the network, the
data or the objective where these are the user's own. Such names are signed when a run is made, with a
key that never leaves the user's state folder, as Jupyter signs notebooks: a folder of someone else, or
one whose names were changed since, has no valid signature.
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

KEY_BYTES = 32
_WHERE = {"model": ("model", "spec"), "data": ("data", "data"), "objective": ("objective", "spec")}


def state_folder() -> Path:
    """Where programs keep what they know of this user: XDG_STATE_HOME, or what the system is used to."""
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
    """What a run's options name that would be executed, by kind; names of the zoo and of data sets are not.

    >>> code_in({"model": {"spec": "net.py:make"}, "data": {"data": "digits"}})
    {'model': 'net.py:make'}
    """
    found = {}
    for kind, (table, key) in _WHERE.items():
        named = config.get(table, {}).get(key)
        if isinstance(named, str) and (":" in named or kind == "objective"):
            found[kind] = named
    # Whoever runs a cluster can send code to those who join it.
    run = config.get("run", {})
    addresses = {key.replace("_", "-"): str(value) for key, value in run.items() if key.endswith("_address")}
    return found | addresses


def sign(config: Mapping[str, Any]) -> str | None:
    """A signature of what a run names to be executed; None if that is nothing, or there is no key.

    A home that cannot be written must not stop a run: then its user has to vouch for it to resume it.
    """
    if not code_in(config):
        return None
    with contextlib.suppress(OSError, RuntimeError):  # the latter where there is no home at all
        return _signature(_make_key(state_folder()), config)
    return None


def is_signed(config: Mapping[str, Any], signature: Any) -> bool:
    """Whether this user's key signed just what these options name."""
    try:
        key = (state_folder() / "key").read_bytes()
    except (OSError, RuntimeError):
        return False
    whole = len(key) == KEY_BYTES and isinstance(signature, str) and signature.isascii()
    return whole and hmac.compare_digest(_signature(key, config), signature)


def refuse_foreign_code(
    path: Path, config: Mapping[str, Any], signature: Any, kinds: Collection[str]
) -> None:
    """Raise if options that this user did not sign name code of one of these kinds."""
    used = {kind: named for kind, named in code_in(config).items() if kind in kinds}
    if not used or is_signed(config, signature):
        return
    listed = ", ".join(f"{kind} {named!r}" for kind, named in used.items())
    again = " ".join(f"--{kind} ..." for kind in used)
    raise RunError(
        f"{path} names code to run ({listed}), and it was not made here by you, or was changed since, or "
        f"{state_folder()} could not be written then: nothing of it was run. If you trust whoever made it, "
        f"pass --trust-run; or name the code yourself: {again}"
    )


def _signature(key: bytes, config: Mapping[str, Any]) -> str:
    """Of all that decides what is executed: the names, the network's options, where imports look."""
    said = {
        "names": code_in(config),
        "options": config.get("model", {}).get("options", {}),
        "folder": config.get("code", {}).get("folder"),
    }
    text = json.dumps(said, sort_keys=True, default=str)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _make_key(folder: Path) -> bytes:
    """The user's key, drawn at the first call; of two processes at once, one draws and both use it."""
    path = folder / "key"
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        drawn = folder / f"key.{secrets.token_hex(4)}"
        try:
            handle = os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(handle, secrets.token_bytes(KEY_BYTES))
            os.close(handle)
            with contextlib.suppress(FileExistsError):
                os.link(drawn, path)
        finally:
            drawn.unlink(missing_ok=True)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise OSError(f"{path} is damaged")
    return key
