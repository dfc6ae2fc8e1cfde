"""A pruned network of Hugging Face transformers as a folder that its `from_pretrained` reads.

The folder holds the network's own files (config.json, model.safetensors), the cut among the values of its
config, and a few lines of code that apply the cut before the weights are loaded:

    AutoModelForImageClassification.from_pretrained(folder, trust_remote_code=True)
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deeppruning.errors import DAMAGE, InputError, RunError, WeightsError
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.system.files import write_atomically

CUT = "deeppruning_cut"  # in the config of the network
MODULE, CLASS = "modeling_deeppruning", "Pruned"
_CODE = '''"""A pruned {name}; the package deeppruning-es applies the cut."""

from deeppruning.exporting.pretrained import pruned
from transformers import {name}

{CLASS} = pruned({name}, __name__)
'''


def pruned(kind: type, module: str) -> Any:
    """A class like `kind`, whose networks are cut as their config says when they are built."""

    base: Any = kind

    class Pruned(base):  # type: ignore[misc]
        def __init__(self, config: Any, *args: Any, **options: Any) -> None:
            super().__init__(config, *args, **options)
            try:
                thin = cut(self, Recipe.from_json(json.dumps(getattr(config, CUT))))
            except (*DAMAGE, AttributeError, RuntimeError, WeightsError) as error:
                raise WeightsError(f"the config has no cut of a {kind.__name__} ({CUT}): {error}") from error
            self.__dict__.update(thin.__dict__)

    Pruned.__module__, Pruned.__qualname__ = module, CLASS
    return Pruned


def write_pretrained(export: Export, path: Path) -> float:
    """Write the folder; the network is loaded from it again, and its outputs compared."""
    network: Any = export.network()
    name = type(network).__name__
    if not type(network).__module__.startswith("transformers.") or not hasattr(network, "save_pretrained"):
        raise InputError(
            f"the format transformers is for networks of Hugging Face transformers, this is a {name}; "
            "use safetensors or hub"
        )
    recipe = (export.metadata or {}).get("cut")
    if recipe is None:
        raise InputError("the format transformers is for pruned networks: `save_pretrained` writes this one")
    path.mkdir(parents=True, exist_ok=True)
    network.config.update({CUT: json.loads(recipe), "auto_map": {_auto_class(name): f"{MODULE}.{CLASS}"}})
    network.save_pretrained(path)
    write_atomically(path / f"{MODULE}.py", _CODE.format(name=name, CLASS=CLASS).encode())
    again = pruned(type(network), __name__).from_pretrained(path).eval()
    return _difference(export, network, again)


def _auto_class(name: str) -> str:
    """The class of transformers that reads a folder without knowing its class.

    >>> _auto_class("ResNetForImageClassification"), _auto_class("ResNetBackbone"), _auto_class("ResNetModel")
    ('AutoModelForImageClassification', 'AutoBackbone', 'AutoModel')
    """
    _, for_, task = name.partition("For")
    return f"AutoModelFor{task}" if for_ else "AutoBackbone" if name.endswith("Backbone") else "AutoModel"


def _difference(export: Export, network: nn.Module, again: nn.Module) -> float:
    """How far the outputs of the network that was loaded again differ."""
    example = export.example().cpu()
    with torch.no_grad():
        pairs = zip(_outputs(network(example)), _outputs(again(example)), strict=True)
        difference = max(float((old - new).abs().max()) for old, new in pairs)
    if not difference <= export.tolerance:
        raise RunError(f"the outputs of the network in the folder differ by {difference:.1e}; do not use it")
    return difference


def _outputs(nested: Any) -> list[Tensor]:
    """The floating-point outputs, in a list."""
    return [leaf for leaf in tensors_in(nested) if leaf.is_floating_point()]


FORMATS.add(
    Format(
        name="transformers",
        suffix="-transformers",
        about="a folder that from_pretrained of transformers reads",
        write=write_pretrained,
        detail="folder for from_pretrained",
        needs=("transformers",),
        graph=False,
        folder=True,
    ),
    place=50,
)
