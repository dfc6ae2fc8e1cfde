"""The facts of a run's history: the name of each, what it holds, and the check of a value that is read back.

>>> ORIGINAL_FIGURES.parse('{"train_error": 0.1, "flops": 12}')
Traceback (most recent call last):
    ...
ValueError: the fact 'original' lacks 'params'
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    NoReturn,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from deeppruning.amounts import percent
from deeppruning.roles import in_order, target_number

Kept = TypeVar("Kept")
Count = Annotated[int, 0]  # a whole number of at least 0
Some = Annotated[int, 1]


class OriginalFigures(TypedDict, total=False):
    """Figures of the original network; the test error, or why there is none, is added by fine-tuning."""

    train_error: float | None
    test_error: float | None
    flops: Count
    params: Count
    doubt: str  # a warning that it predicts badly
    failure: str


class SolutionFigures(TypedDict, total=False):
    """Figures of a pick or another candidate, once it is fine-tuned or its fine-tuning has failed."""

    id: Count
    train_error: float | None
    test_error: float | None
    flops: Count
    flops_pruned: float
    params: Count
    widths: dict[str, int]  # filters kept in each layer
    lr_factor: float  # if it is not 1
    # If fine-tuning did not help, so that the network stays as it was before: the errors on validation data
    # before and after it (none if it diverged), and the number of validation images, if there are images.
    not_helped: tuple[float, float | None, int | None]
    failure: str


class AugmentationFigures(TypedDict):
    """The error of the original on images as they are ("plain") and augmented ("crop=4")."""

    images: int
    errors: dict[str, float]
    note: str  # what that means for fine-tuning; empty if nothing is wrong


class TargetFigures(TypedDict):
    """The outcome of a target."""

    asked: str
    id: int | None  # of the candidate that is the target
    met: bool
    note: str  # its value for each limit or, if no candidate is within the limits, the nearest one


class ScanFigures(TypedDict):
    """The progress of the scan before a guided search."""

    of: int  # cuts
    losses: dict[str, float | None]  # of the cuts evaluated so far, by number; None: infinite


class Int8Figures(TypedDict):
    """A network in int8 compared with the same network in float, both as ONNX files."""

    file_bytes: Count
    float_file_bytes: Count
    calibration_inputs: int
    test_error: float | None
    float_test_error: float | None
    test_images: int | None


class ObjectiveFigures(TypedDict):
    """The second objective, and the value of a user's function for the original network."""

    name: str
    of_the_original: float | None


class TrackerNotes(TypedDict):
    """What is needed to continue the record of a tracker, and how far it goes."""

    kept: dict[str, str]  # names and ids
    generation: Count  # the last one recorded
    epochs: dict[str, int]  # the last one recorded of each fine-tuning
    finished: bool


@dataclass(frozen=True)
class Fact(Generic[Kept]):
    """A JSON value that a run stores under a name; `shape` is its type, which is checked on reading."""

    key: str
    shape: type[Kept]
    required: tuple[str, ...] = ()  # keys of a TypedDict that does not require them itself

    def parse(self, text: str) -> Kept:
        """The value; a ValueError if it is no JSON or has another shape."""
        value = json.loads(text, parse_constant=_refuse_constant)
        for name in self.required:
            if not isinstance(value, dict) or name not in value:
                raise ValueError(f"the fact {self.key!r} lacks {name!r}")
        _check_fact(f"the fact {self.key!r}", value, self.shape)
        return value  # type: ignore[no-any-return]


def _check_fact(place: str, value: Any, shape: Any) -> None:
    """Raise unless a JSON value has the shape of a type."""
    arguments, origin = get_args(shape), get_origin(shape)
    if shape is Any:
        return
    if origin is UnionType or NoneType in arguments:  # all unions here are of one type and None
        if value is not None:
            _check_fact(place, value, next(part for part in arguments if part is not NoneType))
    elif origin is Annotated:
        _check_fact(place, value, arguments[0])
        if value < arguments[1]:
            raise ValueError(f"{place} must be at least {arguments[1]}, got {value}")
    elif is_typeddict(shape) or origin is dict:
        _check_fact_table(place, value, shape)
    elif origin in (list, tuple):
        if not isinstance(value, list) or (origin is tuple and len(value) != len(arguments)):
            raise ValueError(f"{place} must be a list of {len(arguments) if origin is tuple else 'values'}")
        for number, entry in enumerate(value):
            _check_fact(f"{place}, entry {number}", entry, arguments[number if origin is tuple else 0])
    elif shape is float and type(value) is int:
        float(value)  # an OverflowError if it is too large
    elif type(value) is not shape or (shape is float and not math.isfinite(value)):
        raise ValueError(f"{place} must be of type {shape.__name__}, got {type(value).__name__}")
    elif shape is int and abs(value) >= 2**63:
        raise ValueError(f"{place} is too large")


def _check_fact_table(place: str, value: Any, shape: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{place} must be a table, got {type(value).__name__}")
    if not is_typeddict(shape):
        keys, entries = get_args(shape)
        for name, entry in value.items():
            if keys is int and not name.isdecimal():
                raise ValueError(f"{place} has the key {name!r}, which is not a number")
            _check_fact(f"{place}, {name!r}", entry, entries)
        return
    for name in sorted(shape.__required_keys__ - value.keys()):
        raise ValueError(f"{place} lacks {name!r}")
    for name, kind in get_type_hints(shape, include_extras=True).items():
        if name in value:
            _check_fact(f"{place}, {name!r}", value[name], kind)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


_ANY: Any = Any
_OPTIONAL_SOME: Any = Some | None
_SKETCH: Any = dict[str, tuple[float, float]]
_BY_ID: Any = dict[int, str]  # JSON has no keys but texts

# What a run was started with.
OPTIONS = Fact("options", dict[str, Any])  # those that influence the result, by "table.name"
TASK: Fact[str | None] = Fact("task", _ANY)  # fingerprint of the data that candidates are evaluated on
EXAMPLE_INPUT = Fact("example_input", list[str])  # shape and type of each tensor in it
OBJECTIVE = Fact("objective", ObjectiveFigures)
VERSIONS = Fact("versions", dict[str, str])  # Python, torch and the processor
CONTINUED = Fact("continued_by", list[dict[str, str]])  # the same, if it was resumed with others
# Length and a weighted sum of each tensor, of the network and of the sample.
NETWORK_SKETCH: Fact[dict[str, list[float]]] = Fact("network_sketch", _SKETCH)
SAMPLE_SKETCH: Fact[dict[str, list[float]]] = Fact("sample_sketch", _SKETCH)
# Runtime -> the multiple of filters measured to be fast, if that decided which widths are allowed.
MULTIPLES = Fact("multiples", dict[str, int])

# What resulted.
ORIGINAL_FIGURES = Fact("original", OriginalFigures, ("flops", "params"))
LAYERS = Fact("layers", dict[str, list[int]])  # the gene of each filter, -1 if it always stays
# Layer -> sets of genes; the layer disappears, with its branch, if all genes of any set are off.
BRANCHES = Fact("branches", dict[str, list[list[int]]])
GRAPH_NOTES = Fact("graph_notes", list[str])  # what the channel graph could not follow
GUIDE = Fact("guide", dict[str, Any])  # the orders of filters and units that the search uses
SCAN = Fact("scan", ScanFigures)
SPENT = Fact("search_seconds", float)  # that the search has taken, in all sittings
ENDED = Fact("search_ended", Count)  # the generation after which the time was over
TUNING = Fact("tuning", list[int])  # candidates that are fine-tuned with the run's own options
FINISHED = Fact("finished", bool)
LATENCY_PLAN = Fact("latency_plan", dict[str, Any])  # that the search uses
# Seconds for one input by role: in deployment form, as exported, and as `dp.load` returns the network.
LATENCY = Fact("latency_batch_1", dict[str, float])
LATENCY_LOADED = Fact("latency_batch_1_loaded", dict[str, float])
AS_LOADED = "as loaded"  # in the name of a measurement: of the second form
BENCH: Fact[dict[str, Any]] = Fact("bench", _ANY)  # what `deeppruning bench` measured
INT8 = Fact("int8", dict[str, Int8Figures])  # by role, of networks that were quantised
TEST_IMAGES: Fact[int | None] = Fact("test_images", _OPTIONAL_SOME)  # that test errors are measured on
REFUSED: Fact[dict[str, str]] = Fact("refused", _BY_ID)  # candidates that failed their proof, and why
TARGET = Fact("target", TargetFigures)  # the first target; for others see `target_fact`
AUGMENTATION = Fact("augmentation", AugmentationFigures)
TRACKERS = Fact("trackers", dict[str, TrackerNotes])  # by name, the records that are kept of the run

_SOLUTION, _DIVERGED, _TRAINING, _PLAN = "solution/", "diverged/", "training/", "plan/"
_KNOWN: dict[str, Fact[Any]] = {
    fact.key: fact for fact in globals().copy().values() if isinstance(fact, Fact)
}


def target_fact(role: str) -> Fact[TargetFigures]:
    """The outcome of the target of this name, such as "target-2"."""
    return Fact(role, TargetFigures)


def solution_fact(role: str) -> Fact[SolutionFigures]:
    """The figures of the network with a role, which may be "candidate-17"."""
    return Fact(f"{_SOLUTION}{role}", SolutionFigures, ("id", "flops", "params", "flops_pruned"))


def diverged_fact(training: str) -> Fact[list[str]]:
    """Why each attempt of a fine-tuning diverged, such as that of "candidate-17"."""
    return Fact(f"{_DIVERGED}{training}", list[str])


def training_fact(training: str) -> Fact[dict[str, Any]]:
    """The options of a training other than the run's own, such as "candidate-17/1a2b3c4d"."""
    return Fact(f"{_TRAINING}{training}", dict[str, Any])


def trainings_in(facts: Mapping[str, Any], training: str) -> list[dict[str, Any]]:
    """The options of all trainings of a candidate, such as "candidate-17", other than the run's own."""
    return [facts[key] for key in facts if key.startswith(f"{_TRAINING}{training}/")]


def plan_fact(training: str) -> Fact[dict[str, Any]]:
    """What was measured before a training: its epochs and learning rate, such as for "candidate-17"."""
    return Fact(f"{_PLAN}{training}", dict[str, Any])


def plan_line(plan: Mapping[str, Any]) -> str:
    """Length, learning rate and number format of a training, and how they were found.

    >>> plan_line({"epochs": 2.0, "lr": 0.01, "losses": {"0.01": 0.5, "0.1": 0.75}})
    'learning rate 0.01 (loss after a trial: 0.01 -> 0.5, 0.1 -> 0.75)'
    """
    seconds, losses = plan.get("step_seconds"), plan.get("losses")
    if not plan["epochs"]:
        return f"the time is too short to train, a step takes {seconds or 0:.2g} s; it stays as refitted"
    parts = [f"learning rate {plan['lr']:g}"]
    if losses is not None:
        tried = ", ".join(f"{rate} -> {loss:.3g}" for rate, loss in losses.items())
        parts[0] += f" (loss after a trial: {tried})"
    if seconds is not None:
        parts.append(f"{plan['epochs']:.3g} epochs in the time, at {seconds:.2g} s a step")
    if plan.get("precision") == "bfloat16":
        parts.append("in bfloat16, which is faster here")
    return ", ".join(parts)


def solution_role(key: str) -> str | None:
    """The role of the network that a fact describes.

    >>> solution_role("solution/knee"), solution_role("layers")
    ('knee', None)
    """
    return key.removeprefix(_SOLUTION) if key.startswith(_SOLUTION) else None


def solutions_in(facts: Mapping[str, Any]) -> dict[str, SolutionFigures]:
    """The figures of all solutions of a run, by role."""
    return {role: facts[key] for key in facts if (role := solution_role(key)) is not None}


def named(key: str) -> Fact[Any]:
    """The fact of this name; a name that is not listed here may hold anything."""
    role = solution_role(key)
    if target_number(key) is not None:
        return target_fact(key)
    return _KNOWN.get(key, Fact(key, _ANY)) if role is None else solution_fact(role)


def targets_in(facts: Mapping[str, Any]) -> dict[str, TargetFigures]:
    """The outcome of each target of a run, in the order in which they were given."""
    return {role: facts[role] for role in in_order(facts) if target_number(role) is not None}


def refused_in(facts: Mapping[str, Any]) -> dict[str, str]:
    """The candidates of a run that failed their proof, by number, and why."""
    return dict(facts.get(REFUSED.key) or {})


def target_line(role: str, asked: str, note: str) -> str:
    """The outcome of a target as a line for people.

    >>> target_line("target", "flops=40%", "met by candidate 9")
    'target flops=40%: met by candidate 9'
    """
    return f"{role} {asked}: {note}"


def target_lines(facts: Mapping[str, Any]) -> list[str]:
    """The outcome of each target of a run as a line for people."""
    return [target_line(role, target["asked"], target["note"]) for role, target in targets_in(facts).items()]


def refusal_line(id_: int | str, why: str) -> str:
    """That a candidate was refused, as a line for people."""
    return f"candidate {id_} was refused, and the next best taken: {why}"


def unhelped_line(figures: Mapping[str, Any]) -> str:
    """That fine-tuning a network did not help, and what to try, as a line for people; empty if it helped.

    >>> unhelped_line({"not_helped": [0.02, 0.05, 100]}).partition(";")[0]
    'fine-tuning did not help (2.00 % of 100 validation images were wrong before it, 5.00 % after)'
    """
    if "not_helped" not in figures:
        return ""
    before, after, images = figures["not_helped"]

    def figure(error: float) -> str:
        return f"{error:.4g}" if images is None else percent(error)

    where = " on validation data" if images is None else f" of {images:,} validation images were wrong"
    then = "it diverged" if after is None else f"{figure(after)} after"
    return (
        f"fine-tuning did not help ({figure(before)}{where} before it, {then}); the network is kept as it "
        "was before. To try: `deeppruning finetune` with a lower --lr, more --epochs or --crop 0"
    )
