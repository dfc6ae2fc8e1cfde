"""What a run was started with, recorded at its start and checked whenever it is resumed.

Candidates evaluated with other options, another objective or other data would be two experiments in one
population. What does not change the result (workers, device, the places of files) may differ.
"""

import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from deeppruning.errors import RunError
from deeppruning.jobs.solution import original_network
from deeppruning.objectives import Function, as_objective
from deeppruning.options import differences
from deeppruning.runs import RunFolder, facts
from deeppruning.searching.candidate import Context
from deeppruning.searching.moving import REMEDY, has_moved, is_near
from deeppruning.searching.task import Classification, Task
from deeppruning.system.device import torch_threads
from deeppruning.training.tensors import hash_tensors

DECIDING = ("search", "finetune", "target", "model", "data", "objective")  # tables of config.toml
# Where things lie and how the network is made: what comes of them is checked by itself.
PLACES = {"model": ("weights", "spec", "options"), "data": ("data_dir", "loading_workers")}
SPECS = {"data": "data", "objective": "spec"}
CONTINUE = "give the same to continue, or start a new run"


def keep_options(run: RunFolder) -> None:
    """Record the options of a new run; refuse to continue a run whose options were edited."""
    check_options(run)
    run.history.set_fact(facts.OPTIONS, _deciding_options(run.config))


def check_options(run: RunFolder) -> None:
    """Refuse a config.toml in which options that decide the result were edited since the run began."""
    if changed := changed_options(run):
        raise RunError(f"{changed}. Restore them to continue, or start a new run with the others")


def changed_options(run: RunFolder) -> str:
    """Which options that decide the result were edited in config.toml since the run began; empty: none."""
    now = _deciding_options(run.config)
    then = run.history.get_fact(facts.OPTIONS, now)  # none are recorded before the run begins
    changed = differences(then, now)
    return changed and f"{run.path}: options in config.toml have changed since the run began: {changed}"


def _deciding_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that decide a result by "table.name", in JSON's types."""
    options = {
        # A file of the user's own may be moved; its name stays.
        f"{table}.{name}": PurePath(str(value)).name if name == SPECS.get(table) else value
        for table in DECIDING
        for name, value in config.get(table, {}).items()
        if name not in PLACES.get(table, ())
    }
    decoded: dict[str, Any] = json.loads(json.dumps(options))
    return decoded


def is_same_network(run: RunFolder, model: nn.Module) -> bool:
    """Whether a run was started with this network and these weights."""
    expected = run.config.get("model", {}).get("fingerprint")
    same = expected is None or expected == hash_tensors(model.state_dict())
    return same or is_near(run, facts.NETWORK_SKETCH, model.state_dict())


def check_same_network(run: RunFolder, model: nn.Module) -> None:
    """Refuse another network than the one the run was started with."""
    if not is_same_network(run, model):
        remedy = f" ({REMEDY})" if has_moved(run.history) else ""
        raise RunError(
            f"{run.path} was started with another network or other weights; "
            f"give the same ones to continue, or start a new run{remedy}"
        )


def check_same_task(task: Task, run: RunFolder) -> None:
    """Refuse other data than the run was started with; record it at the start."""
    given = task.fingerprint()
    recorded = run.history.get_fact(facts.TASK, given)
    sample = task.sample.key_tensors() if isinstance(task, Classification) else {}
    # What follows the hash is about data that is not in memory.
    same_rest = str(recorded).partition(" ")[2] == str(given).partition(" ")[2]
    if recorded != given and not (same_rest and is_near(run, facts.SAMPLE_SKETCH, sample)):
        raise RunError(f"{run.path} was started with other training data; {CONTINUE}")
    run.history.set_fact(facts.TASK, recorded)


def check_inputs(context: Context, run: RunFolder, threads: int) -> None:
    """Refuse another objective or example input than the run was started with; keep both at the start."""
    check_example(context, run)
    given = describe_objective(context, threads)
    recorded = run.history.get_fact(facts.OBJECTIVE)
    if recorded is None:
        run.history.set_fact(facts.OBJECTIVE, given)
        return
    then, now = recorded["of_the_original"], given["of_the_original"]
    near = 1e-3 if has_moved(run.history) else 1e-6
    same_value = then is None or now is None or math.isclose(then, now, rel_tol=near)
    if recorded["name"] != given["name"] or not same_value:
        raise RunError(
            f"{run.path} was started with the objective {_objective_in_words(recorded)}, "
            f"this is {_objective_in_words(given)}; {CONTINUE}"
        )


def check_example(context: Context, run: RunFolder) -> None:
    """Refuse an example input of another form: FLOPs would be counted for other sizes."""
    given = describe_example(context.example_input)
    recorded = run.history.get_fact(facts.EXAMPLE_INPUT, given)
    if recorded != given:
        raise RunError(
            f"{run.path} was started with an example input of {' and '.join(recorded)}, this is "
            f"{' and '.join(given)}; {CONTINUE}"
        )
    run.history.set_fact(facts.EXAMPLE_INPUT, given)


def describe_example(example_input: Any) -> list[str]:
    """Shape and type of everything in an example input; values decide nothing.

    >>> describe_example((torch.zeros(1, 3, 8, 8), 5))
    ['1x3x8x8 float32', 'int 5']
    """
    return [
        f"{'x'.join(map(str, leaf.shape)) or 'scalar'} {str(leaf.dtype).removeprefix('torch.')}"
        if isinstance(leaf, Tensor)
        else f"{type(leaf).__name__} {leaf if isinstance(leaf, (bool, int, float, str)) else ''}".strip()
        for leaf in tree_leaves(example_input)
    ]


def describe_objective(context: Context, threads: int) -> facts.ObjectiveFigures:
    """The name of the second objective and, of a function, its value for the original network.

    A function that measures has another value each time: then its name is all there is to go by.
    """
    objective = as_objective(context.objective)
    if not isinstance(objective, Function):
        return {"name": objective.name, "of_the_original": None}
    with torch_threads(threads):
        first, second = (_objective_of_original(objective, context) for _ in range(2))
    return {"name": objective.name, "of_the_original": first if first == second else None}


def _objective_of_original(objective: Function, context: Context) -> float | None:
    """A user's objective for the original network; None if that cannot be computed here."""
    try:
        with torch.random.fork_rng(devices=[]):
            value = float(objective.function(original_network(context)))
    except Exception:  # the user's code; it may need a device that only the workers have
        return None
    return value if math.isfinite(value) else None


def _objective_in_words(described: facts.ObjectiveFigures) -> str:
    value = described["of_the_original"]
    return str(described["name"]) + ("" if value is None else f" ({value:g} for the original network)")
