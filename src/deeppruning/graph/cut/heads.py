"""Sizes of attention that modules store as attributes: a thin network has fewer heads.

Which attributes these are is told by their names and values; the proof of every cut tells whether that
was right.
"""

import re
from collections.abc import Callable, Iterator

from torch import nn

from deeppruning.errors import WeightsError
from deeppruning.graph.atoms import AtomTable, Genes, Heads
from deeppruning.graph.cut.multihead import ThinMultiheadAttention
from deeppruning.graph.cut.recipe import Recipe, Sizes

NUMBERS = re.compile(r"(?!.*(dim|size|width|channel)).*head")  # num_heads, heads, num_attention_heads
WIDTHS = re.compile(r"(?!.*(in_dim|in_features|dim_in)).*(dim|size|width|channels|embed|features|d_model)")


def stored_sizes(
    model: nn.Module, table: AtomTable, genes: Genes, add_strip: Callable[[Genes], int]
) -> dict[str, Sizes]:
    """Module -> its attributes that follow the number of heads.

    The innermost module around an attention that stores its number of heads; none where the module holds
    several attentions with different heads.
    """
    found: dict[str, Sizes] = {}
    several: set[str] = set()
    for heads in table.heads:
        own = genes[heads.atoms]
        owner = next(_owners(model, heads), None) if (own >= 0).any() else None
        if owner is None:
            continue
        strip = add_strip(own)
        several |= {owner for other, _ in found.get(owner, {}).values() if other != strip}
        sizes = _sizes(model.get_submodule(owner), heads)
        found.setdefault(owner, {}).update({name: (strip, times) for name, times in sizes.items()})
    return {owner: sizes for owner, sizes in found.items() if owner not in several}


def _owners(model: nn.Module, heads: Heads) -> Iterator[str]:
    """The modules around an attention that store its number of heads, the innermost first."""
    for name in reversed(heads.modules):
        if 1 in _sizes(model.get_submodule(name), heads).values():
            yield name


def _sizes(module: nn.Module, heads: Heads) -> dict[str, int]:
    """Attribute -> how many times the number of heads it is."""
    count = len(heads.atoms)
    sizes: dict[str, int] = {}
    for name, value in vars(module).items():
        if type(value) is not int:
            continue
        if value == count and NUMBERS.match(name):
            sizes[name] = 1
        elif any(value == count * width for width in heads.widths) and WIDTHS.match(name):
            sizes[name] = value // count
    if isinstance(module, nn.MultiheadAttention):
        return {"num_heads": 1} if module.num_heads == count else {}
    return sizes


def resize(name: str, module: nn.Module, recipe: Recipe, sizes: Sizes) -> None:
    """Set, in place, what a module stores to what its thin weights have."""
    for attribute, (strip, times) in sizes.items():
        before, after = recipe.widths[strip] * times, len(recipe.kept[strip]) * times
        if type(vars(module).get(attribute)) is not int or vars(module)[attribute] != before:
            raise WeightsError(
                f"the cut written in this file sets {attribute} of {name}, which is not {before} in this "
                "network; give the class it was pruned from"
            )
        if type(module) is nn.MultiheadAttention and after != before:
            module.__class__ = ThinMultiheadAttention
            module._qkv_same_embed_dim = False  # torch's fused kernels do not know such a network
        vars(module)[attribute] = after
