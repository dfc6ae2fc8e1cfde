"""Networks of other libraries by name, where these are installed: timm:NAME and torchvision:NAME.

A network is built with fresh weights; nothing is downloaded. Names and options may come from a file, so only
names that the library lists are built, and options that would read files or addresses are refused.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from deeppruning.errors import InputError, unknown
from deeppruning.system.commands import how_to_install

# Words of options that would read files or addresses.
_REFUSED = {"weights", "pretrained", "checkpoint", "cache", "url", "file", "hub"}


def is_library_name(spec: object) -> bool:
    """Whether a network is named by its library.

    >>> is_library_name("timm:mobilenetv3_small_100"), is_library_name("nets.py:tiny")
    (True, False)
    """
    return isinstance(spec, str) and spec.partition(":")[0] in _LIBRARIES and ":" in spec


def build_from_library(spec: str, task: Mapping[str, int], options: Mapping[str, Any]) -> nn.Module:
    """A network of a library with fresh weights, for these classes and channels."""
    library, _, name = spec.partition(":")
    for option, value in options.items():
        if _REFUSED & set(option.split("_")):
            raise InputError(
                f"{spec} does not take the option {option!r}: give weights as a file (--weights)"
            )
        if not isinstance(value, (bool, int, float, str)):
            raise InputError(f"the option {option} of {spec} must be a number or a text, got {value!r}")
    try:
        model = _LIBRARIES[library](name, dict(task), dict(options))
    except InputError:
        raise
    except Exception as error:  # whatever the library thinks of the options
        shown = f" with the options {dict(options)}" if options else ""
        raise InputError(f"{spec} cannot be built{shown}: {type(error).__name__}: {error}") from error
    return model


def _timm_model(name: str, task: dict[str, int], options: dict[str, Any]) -> nn.Module:
    timm = _import_library("timm")
    if name not in timm.list_models():
        raise unknown("model of timm", name, timm.list_models())
    sizes = {"num_classes": task["num_classes"], "in_chans": task["in_channels"]}
    if "vit" in name or "swin" in name or "mixer" in name:  # their weights have the size of an image
        sizes["img_size"] = task["image_size"]
    model: nn.Module = timm.create_model(name, pretrained=False, **{**sizes, **options})
    return model


def _torchvision_model(name: str, task: dict[str, int], options: dict[str, Any]) -> nn.Module:
    models = _import_library("torchvision.models")
    listed = models.list_models(module=models)  # classifiers
    if name not in listed:
        raise unknown("model of torchvision", name, listed)
    if task["in_channels"] != 3:
        raise InputError(
            f"networks of torchvision take images of 3 channels, the data has {task['in_channels']}; "
            "use one of timm, which takes any number"
        )
    sizes: dict[str, Any] = {"num_classes": task["num_classes"]}
    if name.startswith("vit_"):
        sizes["image_size"] = task["image_size"]
    if name in ("googlenet", "inception_v3"):  # their second outputs are for training only
        sizes |= {"init_weights": True, "aux_logits": False}
    model: nn.Module = models.get_model(name, weights=None, **{**sizes, **options})
    return model


def _import_library(module: str) -> Any:
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):
            raise InputError(
                f"{package} cannot be imported: {error}; {how_to_install(str(error.name))}"
            ) from error
        raise InputError(f"{package} is not installed: {how_to_install(package)}") from error
    except Exception as error:  # such as operators that were built for another torch
        raise InputError(
            f"{package} is installed but cannot be imported: {type(error).__name__}: {error}; install the "
            "version that belongs to your torch"
        ) from error


_LIBRARIES: dict[str, Callable[[str, dict[str, int], dict[str, Any]], nn.Module]] = {
    "timm": _timm_model,
    "torchvision": _torchvision_model,
}
