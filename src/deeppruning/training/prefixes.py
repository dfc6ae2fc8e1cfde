"""Names in a weights file that lie under the prefix of a wrapper: found, and taken off where that fits.

A Lightning checkpoint has `model.conv1.weight` where the network says `conv1.weight`, DataParallel and
averaged models put `module.` before it, torch.compile `_orig_mod.`; several may be nested. A prefix counts
only if what lies under it is the whole network and nothing else; what lies outside (a loss, a teacher) is
left out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

COMPILED = "_orig_mod."
# What wrappers call the network itself: among several that fit, this is the one to be used.
USUAL_NAMES = {"_orig_mod", "model", "module", "net", "network", "backbone", "student"}
COUNTER = ".num_batches_tracked"  # may be absent, as in files of older torch versions
DEEPEST = 8  # wrappers within wrappers


@dataclass(frozen=True, eq=False)
class Inside:
    """What of a file is the network, under its own names, and what lies outside."""

    prefix: str
    state: dict[str, Tensor]
    outside: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()  # prefixes that fit as well, with other values


def find_network(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> Inside:
    """The entries of a file that are the network, or those that come nearest where none are.

    >>> import torch
    >>> one = torch.zeros(1)
    >>> found = find_network({"model.a": one, "loss.weight": one}, {"a": one})
    >>> found.prefix, list(found.state), found.outside
    ('model.', ['a'], ('loss.weight',))
    """
    compiled = {name.replace(COMPILED, ""): tensor for name, tensor in given.items()}
    needed = sum(not name.endswith(COUNTER) for name in wanted)
    for state in (given, compiled):
        fitting = [each for each in _candidates(state, wanted, needed) if _fits(each, wanted)]
        if fitting:
            return _choose(fitting)
    return next(_candidates(compiled, wanted, 1), Inside("", dict(given)))


def _candidates(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], least: int) -> Iterator[Inside]:
    """What lies under each prefix that leads to at least so many of the network's names, the most first."""
    found: Counter[str] = Counter()
    for name in state:
        for prefix in _prefixes(name):
            found[prefix] += name[len(prefix) :] in wanted
    for prefix, count in sorted(found.items(), key=lambda item: (-item[1], len(item[0]))):
        if count >= least:
            inside = {name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)}
            outside = tuple(name for name in state if not name.startswith(prefix))
            yield Inside(prefix, inside, outside)


def _prefixes(name: str) -> Iterator[str]:
    end = 0
    yield ""
    for _ in range(DEEPEST):
        end = name.find(".", end) + 1
        if not end:
            return
        yield name[:end]


def _fits(found: Inside, wanted: Mapping[str, Tensor]) -> bool:
    missing = [name for name in wanted if name not in found.state and not name.endswith(COUNTER)]
    return not missing and all(
        name in wanted and tensor.shape == wanted[name].shape for name, tensor in found.state.items()
    )


def _choose(fitting: list[Inside]) -> Inside:
    """The network as it is, else the one under usual names, else the only one; others are rivals."""
    usual = [each for each in fitting if set(each.prefix.split(".")[:-1]) <= USUAL_NAMES]
    first, *others = usual or fitting
    rivals = tuple(each.prefix for each in others if not _equal(first.state, each.state))
    return Inside(first.prefix, first.state, first.outside, () if not first.prefix else rivals)


def _equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(bool((one[name] == other[name]).all()) for name in one)
