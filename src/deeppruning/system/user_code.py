"""Load functions and classes written by the user, named as package.module:name or path/to/file.py:name.

Naming one runs the code of its file, as importing it would. Imports of files next to it work as they do for
`python file.py`.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from deeppruning.errors import DeepPruningError, InputError, describe_raised, unknown


def load_function(spec: str, kind: str, forms: str = "") -> Callable[..., Any]:
    """The function or class that `spec` names.

    `kind` says in errors what it is for, as in "objective"; `forms` which other forms a user may write.
    """
    source, _, name = spec.rpartition(":")
    forms = f"write {forms}package.module:function or path/to/file.py:function"
    if not source or not name:
        raise InputError(f"{kind} {spec!r} is not of a known form; {forms}")
    module = _load_users_file(Path(source)) if source.endswith(".py") else _import_users_module(source, forms)
    function = getattr(module, name, None)
    if function is None:
        raise unknown(f"{kind} function in {source}", name, _defined_in(module))
    if not callable(function):
        raise InputError(f"{kind} {spec} is of type {type(function).__name__!r}, not a function")
    return function  # type: ignore[no-any-return]


@contextmanager
def user_errors(called: str, error_type: type[DeepPruningError] = InputError) -> Iterator[None]:
    """Report what the user's code raises inside the block, with the file and line of that code."""
    try:
        yield
    except DeepPruningError:
        raise
    except Exception as error:
        raise error_type(f"{called} raised {describe_raised(error)}") from error


def make_importable(folder: Path) -> None:
    """Let imports see a folder, as `python file.py` does; worker processes inherit the search path."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _defined_in(module: ModuleType) -> list[str]:
    """Names of the functions and classes that a module defines itself."""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]
    return names or ["(no function or class is defined there)"]


def _import_users_module(name: str, forms: str) -> ModuleType:
    # An installed command does not look into the current folder, where a user's package usually is.
    make_importable(Path.cwd())
    with user_errors(f"module {name} cannot be imported: it"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # another module, which this one imports
            raise InputError(
                f"there is no module {error.name!r} to import, neither installed nor in {Path.cwd()}; {forms}"
            ) from error


def _load_users_file(path: Path) -> ModuleType:
    """The module of a file, loaded once for each path."""
    try:
        exists = path.is_file()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not exists:
        raise InputError(f"there is no file {path} (looked in {Path.cwd()})")
    path = path.resolve()
    make_importable(path.parent)
    # The name holds a digest of the path: two files called net.py must not take each other's place.
    name = f"deeppruning_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look it up
    try:
        with user_errors(f"{path} cannot be loaded: it"):
            spec.loader.exec_module(module)
    except DeepPruningError:
        del sys.modules[name]
        raise
    # A worker process cannot import a module of that name, so its classes are pickled by value.
    cloudpickle.register_pickle_by_value(module)
    return module
