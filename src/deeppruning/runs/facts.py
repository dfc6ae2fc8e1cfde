"""The facts of a run's history: what each is called, what it holds, and how a value read back is checked.

>>> ORIGINAL_FIGURES.parse('{"train_error": 0.1, "flops": 12}')
Traceback (most recent call last):
    ...
ValueError: the fact 'original' lacks a whole number 'params'
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypedDict, TypeVar

from deeppruning.roles import in_order, target_number

Kept = TypeVar("Kept")

_COUNTS = ("flops", "params")
_ERRORS = ("train_error", "test_error")


class OriginalFigures(TypedDict, total=False):
    """What is known of the original; the test error, or why there is none, comes with fine-tuning."""

    train_error: float | None
    test_error: float | None
    flops: int
    params: int
    doubt: str  # a warning that it is no good
    failure: str


class SolutionFigures(TypedDict, total=False):
    """What is known of a pick or another candidate, once it is fine-tuned or that has failed."""

    id: int
    train_error: float | None
    test_error: float | None
    flops: int
    flops_pruned: float
    params: int
    widths: dict[str, int]  # filters kept, layer by layer
    lr_factor: float  # where it is not 1
    # Where fine-tuning did not help, so that the network is as it was before: errors on data set aside,
    # before and (none where it diverged) after it, and on how many images, where errors are shares of such.
    not_helped: tuple[float, float | None, int | None]
    failure: str


class AugmentationFigures(TypedDict):
    """How the original errs on images as they are ("plain") and as training changes them ("crop=4")."""

    images: int
    errors: dict[str, float]
    note: str  # what that means for fine-tuning; empty where nothing is wrong


class TargetFigures(TypedDict):
    """What became of the limits that were asked for."""

    asked: str
    id: int | None  # of the candidate that is the target
    met: bool
    note: str  # what it has of each limit or, where none is met, how near the nearest comes


class ScanFigures(TypedDict):
    """How far the scan before a guided search has come."""

    of: int  # cuts
    losses: dict[str, float | None]  # of those that were looked at, by their numbers; None: infinite


class Int8Figures(TypedDict, total=False):
    """A network in int8 beside the same in floats, both as ONNX files; errors where they were measured."""

    file_bytes: int
    float_file_bytes: int
    calibration_inputs: int
    test_error: float | None
    float_test_error: float | None
    test_images: int | None


class ObjectiveFigures(TypedDict):
    """The second objective, and of a function its value for the original network, where it has one."""

    name: str
    of_the_original: float | None


@dataclass(frozen=True)
class Fact(Generic[Kept]):
    """Something that a run keeps under a name, as JSON; `check` raises an error of Python's own."""

    key: str
    check: Callable[[str, Any], None] = lambda key, value: None

    def parse(self, text: str) -> Any:
        """The value; one that is no JSON or not of its shape raises an error of Python's own."""
        value = json.loads(text, parse_constant=_refuse)
        self.check(self.key, value)
        return value


def _check_original(key: str, value: Any) -> None:
    _check_figures(key, value, _COUNTS)


def _check_solution(key: str, value: Any) -> None:
    _check_figures(key, value, ("id", *_COUNTS))
    _check_numbers(key, value, ("flops_pruned",))
    known = value.get("not_helped", [0.0, None, None])
    if not isinstance(known, list) or len(known) != 3:
        raise ValueError(f"the fact {key!r} has no usable 'not_helped'")
    told = dict(zip(("before", "after", "images"), known, strict=True))
    _check_numbers(key, told, tuple(name for name in told if name == "before" or told[name] is not None))


def _check_augmentation(key: str, value: Any) -> None:
    _check_numbers(key, _table(key, value), ("images",))
    _check_numbers_only(key, value.get("errors"))
    if type(value.get("note")) is not str:
        raise ValueError(f"the fact {key!r} has no usable 'note'")


def _check_target(key: str, value: Any) -> None:
    kinds = {"asked": (str,), "id": (int, type(None)), "met": (bool,), "note": (str,)}
    for name, wanted in kinds.items():
        if type(_table(key, value).get(name)) not in wanted:
            raise ValueError(f"the fact {key!r} has no usable {name!r}")


def _check_numbers_only(key: str, value: Any) -> None:
    _check_numbers(key, _table(key, value), tuple(value))


def _check_scan(key: str, value: Any) -> None:
    losses = _table(key, _table(key, value).get("losses"))
    _check_numbers(key, value, ("of",))
    _check_numbers(key, losses, tuple(place for place, loss in losses.items() if loss is not None))


def _check_layers(key: str, value: Any) -> None:
    for genes in _table(key, value).values():
        if not isinstance(genes, int) and not _are_genes(genes):
            raise ValueError(f"the fact {key!r} has genes that are no whole numbers")


def _check_branches(key: str, value: Any) -> None:
    for sets in _table(key, value).values():
        if not isinstance(sets, list) or not all(map(_are_genes, sets)):
            raise ValueError(f"the fact {key!r} has genes that are no whole numbers")


def _check_ids(key: str, value: Any) -> None:
    if not _are_genes(value):
        raise ValueError(f"the fact {key!r} has ids that are no whole numbers")


def _are_genes(value: Any) -> bool:
    return isinstance(value, list) and all(type(gene) is int and abs(gene) < 2**31 for gene in value)


def _check_figures(key: str, value: Any, counts: tuple[str, ...]) -> None:
    table = _table(key, value)
    for name in counts:
        if type(table.get(name)) is not int or table[name] < 0:
            raise ValueError(f"the fact {key!r} lacks a whole number {name!r}")
    # A task of the user's own may have no errors to tell.
    _check_numbers(key, table, tuple(name for name in _ERRORS if table.get(name) is not None))


def _check_numbers(key: str, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if type(table.get(name)) not in (int, float) or not math.isfinite(table[name]):
            raise ValueError(f"the fact {key!r} has no number for {name!r}")


def _check_images(key: str, value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"the fact {key!r} is no number of images")


def _check_int8(key: str, value: Any) -> None:
    for figures in _table(key, value).values():
        _check_figures(key, figures, ("file_bytes", "float_file_bytes"))


def _check_refused(key: str, value: Any) -> None:
    for id_, why in _table(key, value).items():
        if not id_.isdecimal() or not isinstance(why, str):
            raise ValueError(f"the fact {key!r} does not name candidates and reasons")


def _check_lines(key: str, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ValueError(f"the fact {key!r} is no list of lines")


def _check_table(key: str, value: Any) -> None:
    _table(key, value)


def _check_tables(key: str, value: Any) -> None:
    if not isinstance(value, list):
        raise ValueError(f"the fact {key!r} is {type(value).__name__}, not a list")
    for table in value:
        _table(key, table)


def _check_sketch(key: str, value: Any) -> None:
    for pair in _table(key, value).values():
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"the fact {key!r} has no two numbers for each tensor")
        _check_numbers(key, dict(zip(("length", "sum"), pair, strict=True)), ("length", "sum"))


def _table(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"the fact {key!r} is {type(value).__name__}, not a table")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


# What a run was started with.
OPTIONS = Fact[dict[str, Any]]("options")  # those that decide the result, by "table.name"
TASK = Fact["str | None"]("task")  # fingerprint of the data that candidates are judged on
EXAMPLE_INPUT = Fact[list[str]]("example_input")  # shape and type of everything in it
OBJECTIVE = Fact[ObjectiveFigures]("objective")
VERSIONS = Fact[dict[str, str]]("versions", _check_table)  # Python, torch and the processor
CONTINUED = Fact[list[dict[str, str]]](
    "continued_by", _check_tables
)  # the same, where it went on with others
# Length and a weighted sum of each tensor, of the network and of the sample: see `pruning.moving`.
NETWORK_SKETCH = Fact[dict[str, list[float]]]("network_sketch", _check_sketch)
SAMPLE_SKETCH = Fact[dict[str, list[float]]]("sample_sketch", _check_sketch)
# Runtime -> the multiple of filters it was measured to be fast at, where that decided which widths there are.
MULTIPLES = Fact[dict[str, int]]("multiples", _check_numbers_only)

# What came of it.
ORIGINAL_FIGURES = Fact[OriginalFigures]("original", _check_original)
LAYERS = Fact[dict[str, list[int]]]("layers", _check_layers)  # the gene of each filter, -1 where it stays
# Layer -> sets of genes without any one of which it is gone, with the branch it stands in.
BRANCHES = Fact[dict[str, list[list[int]]]]("branches", _check_branches)
GRAPH_NOTES = Fact[list[str]]("graph_notes", _check_lines)  # what the channel graph could not follow
GUIDE = Fact[dict[str, Any]]("guide", _check_table)  # orders of filters and units that the search follows
SCAN = Fact[ScanFigures]("scan", _check_scan)
TUNING = Fact[list[int]]("tuning", _check_ids)  # candidates that are fine-tuned by the run's own options
FINISHED = Fact[bool]("finished")
LATENCY_PLAN = Fact[dict[str, Any]]("latency_plan", _check_table)  # that the search goes by
LATENCY = Fact[dict[str, float]]("latency_batch_1", _check_numbers_only)  # seconds for one input, by role
BENCH = Fact[dict[str, Any]]("bench")  # what `deeppruning bench` measured
INT8 = Fact[dict[str, Int8Figures]]("int8", _check_int8)  # by role, of networks that were quantised
TEST_IMAGES = Fact["int | None"]("test_images", _check_images)  # that test errors are measured on
REFUSED = Fact[dict[str, str]]("refused", _check_refused)  # candidates that are not handed out, and why
TARGET = Fact[TargetFigures]("target", _check_target)  # the first; of others see `target_fact`
AUGMENTATION = Fact[AugmentationFigures]("augmentation", _check_augmentation)

_SOLUTION, _DIVERGED, _TRAINING = "solution/", "diverged/", "training/"
_KNOWN: dict[str, Fact[Any]] = {
    fact.key: fact
    for fact in (
        OPTIONS, TASK, EXAMPLE_INPUT, OBJECTIVE, VERSIONS, CONTINUED, NETWORK_SKETCH, SAMPLE_SKETCH,
        ORIGINAL_FIGURES, LAYERS, BRANCHES, GUIDE, SCAN, TUNING, FINISHED, LATENCY_PLAN, LATENCY, BENCH, INT8,
        MULTIPLES, TEST_IMAGES, REFUSED, AUGMENTATION, GRAPH_NOTES,
    )
}  # fmt: skip


def told_target(role: str, asked: str, note: str) -> str:
    """What became of limits, as a line for people.

    >>> told_target("target", "flops=40%", "met by candidate 9")
    'target flops=40%: met by candidate 9'
    """
    return f"{role} {asked}: {note}"


def refused_in(kept: Mapping[str, Any]) -> dict[str, str]:
    """The candidates of a run that were not handed out, by their numbers, and why."""
    return dict(kept.get(REFUSED.key) or {})


def told_refused(id_: int | str, why: str) -> str:
    """That a candidate was refused, as a line for people."""
    return f"candidate {id_} was refused, and the next best taken: {why}"


def told_targets(kept: Mapping[str, Any]) -> list[str]:
    """A line on each target of a run."""
    return [told_target(role, one["asked"], one["note"]) for role, one in targets_in(kept).items()]


def target_fact(role: str) -> Fact[TargetFigures]:
    """What became of the limits that the target of this name, be it "target-2", was to keep."""
    return Fact(role, _check_target)


def targets_in(kept: Mapping[str, Any]) -> dict[str, TargetFigures]:
    """What became of each target of a run, in the order they were asked for."""
    return {role: kept[role] for role in in_order(kept) if target_number(role) is not None}


def told_unhelped(figures: Mapping[str, Any]) -> str:
    """That the fine-tuning of a network did not help, and what to try, as a line for people; else nothing.

    >>> told_unhelped({"not_helped": [0.02, 0.05, 100]}).partition(";")[0]
    'fine-tuning did not help (2.00 % of 100 images set aside were wrong before it, 5.00 % after)'
    """
    if "not_helped" not in figures:
        return ""
    before, after, images = figures["not_helped"]
    first, then = (_figure(error, images is not None) for error in (before, after))
    then = "it diverged" if after is None else f"{then} after"
    where = f" of {images:,} images set aside were wrong" if images is not None else " on data set aside"
    return (
        f"fine-tuning did not help ({first}{where} before it, {then}); the network is kept as it was before. "
        "To try: `deeppruning finetune` with a lower --lr, more --epochs or --crop 0"
    )


def _figure(error: float | None, is_share: bool) -> str:
    if error is None:
        return ""
    return f"{100 * error:.2f} %" if is_share else f"{error:.4g}"


def solution_fact(role: str) -> Fact[SolutionFigures]:
    """What is known of the network in a role, which may be "candidate-17"."""
    return Fact(f"{_SOLUTION}{role}", _check_solution)


def diverged_fact(training: str) -> Fact[list[str]]:
    """Why each attempt of a fine-tuning diverged, such as that of "candidate-17"."""
    return Fact(f"{_DIVERGED}{training}")


def training_fact(training: str) -> Fact[dict[str, Any]]:
    """By which options a candidate was trained apart from the run's own, as "candidate-17/1a2b3c4d"."""
    return Fact(f"{_TRAINING}{training}", _check_table)


def solution_role(key: str) -> str | None:
    """The role whose network a fact of this name is about.

    >>> solution_role("solution/knee"), solution_role("layers")
    ('knee', None)
    """
    return key.removeprefix(_SOLUTION) if key.startswith(_SOLUTION) else None


def named(key: str) -> Fact[Any]:
    """The fact of this name; one that no run keeps may hold anything."""
    role = solution_role(key)
    if target_number(key) is not None:
        return target_fact(key)
    return _KNOWN.get(key, Fact(key)) if role is None else solution_fact(role)
