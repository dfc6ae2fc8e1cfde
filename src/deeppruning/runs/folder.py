"""The folder of a run: options in config.toml, the history, and the solutions as safetensors.

>>> import tempfile
>>> with RunFolder.create(Path(tempfile.mkdtemp()) / "mine", {"search": {"offspring": 4}}) as run:
...     run.config["search"]
{'offspring': 4}
"""

import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli_w

from deeppruning.errors import RunError
from deeppruning.runs.database import FORMAT, refuse_format
from deeppruning.runs.history import History
from deeppruning.runs.leftovers import remove_leftovers
from deeppruning.runs.lock import RunLock
from deeppruning.runs.tables import check_tables
from deeppruning.runs.trust import refuse_foreign_code, sign
from deeppruning.system.commands import command
from deeppruning.system.files import write_atomically
from deeppruning.system.toml import read_toml, without_none
from deeppruning.system.user_code import make_importable
from deeppruning.version import __version__

CONFIG, HISTORY, LOCK = "config.toml", "history.sqlite", "run.lock"
FINETUNE = "finetune"  # the folder of networks in training
COMPARISON = "compare"  # the table of config.toml that only a comparison has


class RunFolder(AbstractContextManager["RunFolder"]):
    """A run on disk; made by `create` or `open`, closed by leaving its `with` block.

    `config` holds the options the run was created with, `version` the package version that created it.
    """

    def __init__(
        self, path: Path, config: dict[str, Any], header: Mapping[str, Any], lock: RunLock | None
    ) -> None:
        self.path = path
        self.config = config
        self.version: str = header["version"]
        self._signature = header.get("signature")
        self._lock = lock

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, Any]) -> "RunFolder":
        """Start a run in a new or empty folder and lock it; options that are None are left out."""
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path} cannot be created ({error.strerror}); choose another folder") from error
        refuse_occupied(path)
        lock = RunLock(path / LOCK)
        try:
            refuse_occupied(path)  # another process may have been quicker between the check and the lock
            remove_leftovers(path)
            plain = without_none(config)
            header = without_none({"format": FORMAT, "version": __version__, "signature": sign(plain)})
            write_atomically(path / CONFIG, _config_as_toml(header, plain).encode())
            return cls(path, *_read_config(path), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path | str, *, read_only: bool = False, comparison: bool = False) -> "RunFolder":
        """Open a run to continue it, with its lock; or, read-only, to look at it while another process works.

        The folder of a comparison is refused if a run is expected, and vice versa.
        """
        path = Path(path)
        config, header = _read_config(path)
        if comparison and COMPARISON not in config:
            raise RunError(f"{path} holds a run, not a comparison; choose another folder")
        if not comparison and COMPARISON in config:
            raise RunError(
                f"{path} holds a comparison, not a run; continue it with the same `deeppruning compare`"
            )
        run = cls(path, config, header, None if read_only else RunLock(path / LOCK))
        if not read_only:
            remove_leftovers(path)
        return run

    @cached_property
    def history(self) -> History:
        """The run's history, opened when first needed, for reading only if the run was."""
        if self._lock is not None and not is_begun(self.path):
            made = [file for place in (".", FINETUNE) for file in (self.path / place).glob("*.safetensors")]
            if made:
                # A search that begins again may number its candidates otherwise.
                raise RunError(
                    f"{self.path / HISTORY} is empty or missing, though the run has networks "
                    f"({min(made).name}): restore it from a copy or start a new run; the networks can be used"
                )
        return History(self.path / HISTORY, read_only=self._lock is None)

    def refuse_foreign_code(self, kinds: Collection[str]) -> None:
        """Raise if the run names code of these kinds (model, data, objective) and is not this user's own."""
        refuse_foreign_code(self.path, self.config, self._signature, kinds)

    def open_imports(self) -> None:
        """Let imports look where they did when the run was made; only for runs with code that is trusted."""
        if "code" in self.config:
            make_importable(Path(self.config["code"]["folder"]))

    def solution(self, role: str) -> Path:
        """The file of the solution of this name, whether or not it has been saved."""
        return self.path / f"{role}.safetensors"

    def close(self) -> None:
        """Close the history and release the lock; further calls do nothing."""
        if "history" in self.__dict__:
            self.history.close()
        if self._lock is not None:
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.close()


def is_begun(path: Path) -> bool:
    """Whether anything is recorded in a run's history."""
    file = path / HISTORY
    return file.is_file() and file.stat().st_size > 0


def refuse_occupied(path: Path) -> None:
    """Raise unless a run can be started in this folder, which need not exist."""
    if not path.is_dir():
        if path.exists():
            raise RunError(f"{path} is a file, so no run can be kept in it; choose another folder")
        return
    if not os.access(path, os.W_OK | os.X_OK):
        raise RunError(f"{path} cannot be written to; choose another folder")
    if (path / CONFIG).exists():
        raise RunError(
            f"{path} already holds a run; continue it with `{command('resume', path)}` "
            "or choose another folder"
        )
    for name in sorted(entry.name for entry in path.iterdir()):
        # These may remain of a run that was killed while it was being created.
        if name != LOCK and not (name.startswith(f".{CONFIG}.") and name.endswith(".partial")):
            raise RunError(f"{path} is not empty (it holds {name}) and not a run; choose another folder")


def _config_as_toml(header: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    clash = sorted(header.keys() & config.keys())
    if clash:
        raise RunError(f"the option table {clash[0]!r} has a reserved name; choose another")
    try:
        return tomli_w.dumps({**header, **config})
    except TypeError as error:
        raise RunError(f"the options cannot be written as TOML: {error}") from error


def _read_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of a run's config.toml, and its header: format, version, signature."""
    file = path / CONFIG
    if not file.is_file():
        what = "has no config.toml, so it is not a run" if path.is_dir() else "is not a folder"
        raise RunError(f"{path} {what}; give the folder that `deeppruning prune --out` created")
    try:
        tables = read_toml(file)
    except (OSError, ValueError) as error:
        raise RunError(
            f"{file} cannot be read ({error}); restore it from a copy or start a new run"
        ) from error
    header = {key: tables.pop(key, None) for key in ("format", "version", "signature")}
    format_, version = header["format"], header["version"]
    if type(format_) is not int or not isinstance(version, str):
        raise RunError(f"{file} lacks format and version, so it is not a run's; give another folder")
    refuse_format(file, format_)
    return check_tables(tables, file), header
