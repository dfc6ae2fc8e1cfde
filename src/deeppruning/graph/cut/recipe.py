"""A cut in plain numbers: it can be applied to any copy of the network and stored with its weights.

>>> recipe = Recipe(kept=((0, 2),), widths=(3,), parameters={"conv.weight": ((0, 0),)})
>>> Recipe.from_json(recipe.to_json()) == recipe
True
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppruning.errors import DAMAGE, WeightsError

Positions = NDArray[np.int64]
Cuts = tuple[tuple[int, int], ...]  # ((dimension, strip), ...)
Sizes = dict[str, tuple[int, int]]  # attribute -> (strip, times as large as the positions of it that stay)

WIDEST = 1 << 24  # channels of a strip; a file must not make us allocate more


@dataclass(frozen=True, eq=False)
class Recipe:
    """Which positions of each strip stay, and which dimensions of which parameters the strips index."""

    kept: Sequence[Positions | Sequence[int]]  # stored as arrays
    widths: tuple[int, ...]  # of the uncut strips
    parameters: dict[str, Cuts]
    aliases: dict[str, str] = field(default_factory=dict)  # other names of shared parameters
    detached: dict[str, tuple[int | None, int]] = field(default_factory=dict)  # wrapped modules
    grouped: dict[str, int] = field(
        default_factory=dict
    )  # weight with groups that go whole -> rows per group
    norms: dict[str, Cuts] = field(default_factory=dict)
    hollow: tuple[str, ...] = ()  # modules that are replaced by a tensor without channels
    answers: dict[str, str] = field(
        default_factory=dict
    )  # modules that are replaced by a constant -> the layer that fed them
    spread: tuple[str, ...] = ()  # the constants that fill a whole map
    unreached: tuple[str, ...] = ()  # layers that did not run when the graph was built: they stay as they are
    sizes: dict[str, Sizes] = field(default_factory=dict)  # of attributes that modules store

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", tuple(np.asarray(kept, dtype=np.int64) for kept in self.kept))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def kept_along(self, parameter: str, dimension: int, width: int) -> Positions:
        """The original's positions that stay along a dimension of a parameter, which has this width uncut."""
        for place, strip in self.parameters.get(self.aliases.get(parameter, parameter), ()):
            if place == dimension:
                return np.asarray(self.kept[strip])
        return np.arange(width)

    def to_json(self) -> str:
        """As text, the same for equal recipes."""
        table = {each.name: getattr(self, each.name) for each in fields(self)}
        table["kept"] = [np.asarray(kept).tolist() for kept in self.kept]
        for name in ("hollow", "answers", "spread", "unreached", "sizes"):  # absent where there are none
            if not table[name]:
                del table[name]
        return json.dumps(table, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """Read the text of `to_json`; anything else is refused, since files may come from anywhere."""
        try:
            table = json.loads(text)
            strange = sorted(table.keys() - {each.name for each in fields(cls)})
            if strange:  # left out, the network would be another one
                raise ValueError(f"it has {strange[0]!r}, which this version of deeppruning does not know")
            recipe = cls(
                kept=tuple(tuple(map(_index, positions)) for positions in table["kept"]),
                widths=tuple(map(_index, table["widths"])),
                parameters=_cuts(table["parameters"]),
                aliases={str(name): str(other) for name, other in table["aliases"].items()},
                detached={
                    str(name): (None if first is None else _index(first), _index(second))
                    for name, (first, second) in table["detached"].items()
                },
                grouped={str(name): _index(rows) for name, rows in table["grouped"].items()},
                norms=_cuts(table["norms"]),
                hollow=tuple(map(str, table.get("hollow", ()))),
                spread=tuple(map(str, table.get("spread", ()))),
                unreached=tuple(map(str, table.get("unreached", ()))),
                sizes={str(name): _sizes(own) for name, own in table.get("sizes", {}).items()},
                answers={str(name): str(feeder) for name, feeder in table.get("answers", {}).items()},
            )
            recipe._check()
        except DAMAGE as error:
            raise WeightsError(f"the cut written in this file cannot be read ({error})") from error
        return recipe

    def _check(self) -> None:
        """Refuse positions, strips or dimensions that no cut has."""
        if len(self.kept) != len(self.widths):
            raise ValueError("as many kept lists as widths are needed")
        if any(width > WIDEST for width in self.widths):
            raise ValueError(f"widths beyond {WIDEST}")
        for positions, width in zip(self.kept, self.widths, strict=True):
            listed = np.asarray(positions)
            if (np.diff(listed) <= 0).any() or (len(listed) and listed[-1] >= width):
                raise ValueError(f"kept positions must rise and stay below {width}")
        strips = [strip for cuts in (*self.parameters.values(), *self.norms.values()) for _, strip in cuts]
        strips += [strip for pair in self.detached.values() for strip in pair if strip is not None]
        strips += [strip for sizes in self.sizes.values() for strip, _ in sizes.values()]
        if any(strip >= len(self.kept) for strip in strips):
            raise ValueError("a strip that is not listed")
        if any(rows < 1 for rows in self.grouped.values()):
            raise ValueError("groups of no rows")


def _index(value: Any) -> int:
    """A whole number of a recipe in JSON, checked."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a position")
    return value


def _sizes(table: dict[str, Any]) -> Sizes:
    """The sizes of one module, checked."""
    return {str(name): (_index(strip), _index(times)) for name, (strip, times) in table.items()}


def _cuts(table: dict[str, Any]) -> dict[str, Cuts]:
    """The cuts of each parameter in a recipe's JSON."""
    return {
        str(name): tuple((_index(dimension), _index(strip)) for dimension, strip in cuts)
        for name, cuts in table.items()
    }
