"""From what a user writes on the command line to a network: a zoo name or a factory of the user's own."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from torch import nn

from deeppruning.errors import DeepPruningError, InputError, describe_raised, unknown
from deeppruning.models.registry import call_builder, check_task, create_model
from deeppruning.system.commands import command


def _forms() -> str:
    return f"a name from `{command('models')}`, package.module:factory or path/to/file.py:factory"


def resolve_model(
    spec: str, *, num_classes: int, in_channels: int, image_size: int, **options: Any
) -> nn.Module:
    """The network that `spec` names: a zoo name, `package.module:factory` or `path/to/file.py:factory`.

    A factory gets those of num_classes, in_channels and image_size that its signature declares. Naming
    one runs the user's code in that file, as importing it would.
    """
    task = check_task(num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    source, colon, name = spec.rpartition(":")
    if not colon:
        if spec.endswith(".py"):
            raise InputError(f"{spec!r} does not say which function makes the network; write {spec}:factory")
        return create_model(spec, **task, **options)
    if not source or not name:
        raise InputError(f"model {spec!r} is not of a known form; write {_forms()}")
    module = load_module(source, f"a model is {_forms()}")
    factory = _find_factory(module, source, name)
    try:
        model = call_builder(spec, factory, task, options)
    except DeepPruningError:
        raise
    except Exception as error:
        raise InputError(f"{spec} raised {describe_raised(error)}") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec} must return a torch.nn.Module, it returned {type(model).__name__}")
    return model


def _find_factory(module: ModuleType, source: str, name: str) -> Callable[..., nn.Module]:
    factory = getattr(module, name, None)
    if factory is None:
        offered = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__ == module.__name__
        ]
        raise unknown(f"factory in {source}", name, offered or ["(no function or class is defined there)"])
    if isinstance(factory, nn.Module) or not callable(factory):
        raise InputError(
            f"{source}:{name} is {type(factory).__name__!r}, not a factory; "
            "name a function or class that makes the network when called"
        )
    return factory  # type: ignore[no-any-return]


def load_module(source: str, forms: str) -> ModuleType:
    """The user's module of this name or in this .py file; `forms` ends the message if there is none."""
    return _load_file(Path(source)) if source.endswith(".py") else _import_module(source, forms)


def _import_module(name: str, forms: str) -> ModuleType:
    # An installed command does not look into the current folder, where a user's package usually is.
    make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InputError(
                f"there is no module {error.name!r} to import, neither installed nor in {Path.cwd()}; {forms}"
            ) from error
        raise InputError(f"module {name} could not be imported: {describe_raised(error)}") from error
    except Exception as error:
        raise InputError(f"module {name} cannot be imported, it raised {describe_raised(error)}") from error


def _load_file(path: Path) -> ModuleType:
    try:
        found = path.is_file()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise InputError(f"there is no file {path} (looked in {Path.cwd()})")
    path = path.resolve()
    make_importable(path.parent)
    # The name holds a digest of the path: two files called net.py must not take each other's place.
    name = f"deeppruning_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{path} cannot be loaded, it raised {describe_raised(error)}") from error
    # A worker process cannot import a module of that name, so its classes travel with what is sent.
    cloudpickle.register_pickle_by_value(module)
    return module


def make_importable(folder: Path) -> None:
    """Let imports see a folder, as `python file.py` does; worker processes inherit the search path."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
