"""All methods by name."""

import importlib.util
from collections.abc import Sequence

from deeppruning.comparison.methods.auto_balanced import AutoBalanced
from deeppruning.comparison.methods.genetic import Genetic
from deeppruning.comparison.methods.nsga import KGEA, NSGA2
from deeppruning.comparison.methods.ranking import ByCriterion, L1Sensitivity
from deeppruning.comparison.methods.searching import RandomSearch, Strategy
from deeppruning.comparison.methods.thinet import ThiNet
from deeppruning.comparison.methods.uniform_width import UniformWidth
from deeppruning.comparison.problem import Method
from deeppruning.errors import InputError, unknown
from deeppruning.importance.criteria import APoZ, Entropy, L1Norm, MeanActivation, Random

_CRITERIA = (Random(), L1Norm(), MeanActivation(), APoZ(), Entropy())

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *(ByCriterion(criterion) for criterion in _CRITERIA),
        *(ByCriterion(criterion, everywhere=True) for criterion in _CRITERIA),
        L1Sensitivity(),
        ThiNet(),
        AutoBalanced(),
        Genetic(),
        KGEA(),
        NSGA2(),
        Strategy("plus"),
        Strategy("comma"),
        RandomSearch(),
        UniformWidth(),
    )
}


def choose_methods(names: str | Sequence[str]) -> list[Method]:
    """The methods of these names (a list, or one text with commas) in the registry's order; "all" is all."""
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    for name in listed:
        if name != "all" and name not in METHODS:
            raise unknown("method", name, ("all", *METHODS))
    if not listed:
        raise InputError(f"no method is named; choose among all, {', '.join(METHODS)}")
    chosen = [method for name, method in METHODS.items() if name in listed or "all" in listed]
    for method in chosen:
        if method.needs is not None and importlib.util.find_spec(method.needs) is None:
            raise InputError(
                f"the method {method.name} needs {method.needs}: install it with "
                "`pip install 'deeppruning-es[rivals]'`, or name other methods"
            )
    return chosen
