"""The options of the search and of fine-tuning on the command line: one for each field of their configs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.options.headings import (
    CUTTING,
    FINETUNING,
    JUDGING,
    MACHINE,
    OUTPUT,
    SEARCH,
    Command,
    under,
)
from deeppruning.config import RUNTIMES, STRATEGIES, USUAL_SAMPLE, FinetuneConfig, SearchConfig
from deeppruning.objectives import OBJECTIVES
from deeppruning.searching.evaluations import EVALUATIONS

# What each preset starts from; options that are given come on top.
_SEARCHES = {"guided": SearchConfig(), "paper": SearchConfig.paper()}
_FINETUNES = {"guided": FinetuneConfig(), "paper": FinetuneConfig.paper()}
_PREFIX = "finetune_"

# field, type, what it shows in place of a value, help; then whether the paper has a value for it.
_SEARCH_FIELDS: tuple[tuple[str, Any, str | None, str, bool], ...] = (
    ("strategy", str, "|".join(STRATEGIES), "How candidates arise and who is kept; --preset sets it.", True),
    ("offspring", int, None, "New candidates a generation (lambda).", True),
    ("generations", int, None, "Generations.", True),
    ("low", float, None, "Guided: share of the original's cost at which the search begins.", False),
    ("high", float, None, "Guided: share of the original's cost at which it ends.", False),
    ("bins", int, None, "Guided: steps of cost; the best candidate of each is kept.", False),
    ("focus", float, None, "Guided: share of the cost that gets half the effort; --target sets it.", False),
    ("mutation", float, None, "Paper: chance of each bit to flip.", True),
    ("selection", str, "plus|comma", "Paper: whether the three parents compete with their offspring.", True),
    ("parents", int, None, "Paper: how many of the three are recombined for one offspring (rho).", True),
    ("sample", int, None, "Training images that candidates are judged on, as many of each class.", True),
    ("evaluation", str, "|".join(EVALUATIONS),
     f"How a candidate is judged: {', or '.join(kind.about for kind in EVALUATIONS.values())}.", True),
    ("eval_epochs", int, None, "Epochs of SGD for one candidate.", True),
    ("eval_lr", float, None, "Learning rate for one candidate.", True),
    ("eval_schedule", str, "constant|cosine|onecycle", "How that rate changes.", False),
    ("eval_batch_size", int, None, "Images a step for one candidate.", False),
    ("eval_momentum", float, None, "Momentum of SGD for one candidate.", False),
    ("eval_weight_decay", float, None, "Weight decay for one candidate.", False),
    ("eval_augment", bool, None, "Crop and mirror images at random while a candidate is trained.", False),
    ("objective", str, "|".join((*OBJECTIVES, "FUNCTION")),
     "What is minimised beside the error; a FUNCTION of the thin network is package.module:name or "
     "file.py:name.", True),
    ("latency_runtime", str, "|".join(RUNTIMES), "What runs networks whose latency counts.", False),
    ("latency_batch", int, None, "Inputs at once where latency counts.", False),
    ("latency_threads", int, None, "Processor threads where latency counts.", False),
    ("encoding", str, "paper|full",
     "full: all layers that can be. paper: those of the paper.", True),
    ("min_channels", int, None, "Filters that every layer keeps at least.", False),
    ("round_to", int, None,
     "Keep filters in multiples of this number, as 16 for AVX-512; 1: any number of them.", False),
    ("prune_linear", bool, None, "Hidden units of linear layers may go, as in a transformer's MLPs.", False),
    ("depth", bool, None, "Whole branches may go, as residual blocks; else each layer keeps a filter.", True),
    ("threads", int, None, "Processor threads a candidate; part of the result's bits.", False),
)  # fmt: skip

_FINETUNE_FIELDS: tuple[tuple[str, Any, str | None, str, bool], ...] = (
    ("epochs", int, None, "Epochs of fine-tuning on all training images.", True),
    ("lr", float, None, "Learning rate of fine-tuning.", True),
    ("schedule", str, "constant|cosine|onecycle", "How that rate changes.", False),
    ("batch_size", int, None, "Images a step of fine-tuning.", False),
    ("momentum", float, None, "Momentum of fine-tuning.", False),
    ("nesterov", bool, None, "Nesterov's form of momentum.", False),
    ("weight_decay", float, None, "Weight decay of fine-tuning.", False),
    ("label_smoothing", float, None, "Share of the target spread over all classes.", False),
    ("distill", float, None, "Share of the loss that follows the original network's outputs.", False),
    ("temperature", float, None, "Softness of the outputs that are followed.", False),
    ("from_scratch", bool, None, "Re-draw the weights before, as in the paper's last experiment.", False),
    (
        "keep_best",
        bool,
        None,
        "Set some training images aside; a network that errs less on them before "
        "fine-tuning than after it is kept as it was.",
        False,
    ),
    ("crop", int, None, "Border in pixels for random crops, 0 for none.", False),
    ("flip", bool, None, "Mirror images at random.", False),
    ("cutout", int, None, "Side of the square blanked at random, 0 for none.", False),
)
_FITTED = {
    "crop": "an eighth of the side, none if the original errs on such images",
    "flip": "colour images only, unless the original errs on such",
    "round_to": "what is measured to be fast on this machine, as 8 or 16; 1 with --preset paper",
    "sample": f"{USUAL_SAMPLE}, the paper's value, or as many as the data has balanced",
}
# These have one meaning in a search, so their flags need no prefix.
_UNPREFIXED = (
    "label_smoothing",
    "distill",
    "temperature",
    "from_scratch",
    "keep_best",
    "crop",
    "flip",
    "cutout",
)


def search_options(command: Command) -> Command:
    """Adds an option for every field of SearchConfig, left at None where not given."""
    preset = click.option(
        "--preset",
        type=click.Choice(list(_SEARCHES)),
        help="guided: our own search and fine-tuning. paper: those of the paper, to the letter. Options "
        "given beside it come on top. [guided]",
    )
    seed = click.option("--seed", type=int, help=f"Seed of everything random. [{SearchConfig().seed}]")
    exclude = click.option(
        "--exclude",
        multiple=True,
        metavar="PATTERN",
        help="Leave layers of this name alone (wildcards * and ?); may be repeated. [none]",
    )
    fields = [
        under(
            _heading(row[0]),
            _option(f"--{_dashed(row[0])}", row[0], row, _shown_values(_SEARCHES, row[0])),
        )
        for row in _SEARCH_FIELDS
    ]
    return under(SEARCH, preset, *fields, under(CUTTING, exclude), seed)(command)


def _heading(field: str) -> str:
    """The heading in --help that a field of SearchConfig stands under."""
    if field.startswith("eval") or field == "sample":
        return JUDGING
    if field in ("encoding", "min_channels", "round_to", "prune_linear", "depth"):
        return CUTTING
    return MACHINE if field == "threads" else SEARCH


def finetune_options(*, prefix: bool) -> Callable[[Command], Command]:
    """Adds an option for every field of FinetuneConfig; with `prefix` as --finetune-epochs and so on.

    The parameters are called finetune_epochs and so on in either case.
    """
    options = []
    for row in _FINETUNE_FIELDS:
        field = row[0]
        flag = _dashed(_PREFIX + field if prefix and field not in _UNPREFIXED else field)
        values = _shown_values(_FINETUNES, field) if prefix else ("as in the run",)
        options.append(_option(f"--{flag}", _PREFIX + field, row, values))
    return under(FINETUNING, *options)


def search_config(settings: dict[str, Any]) -> tuple[SearchConfig, str | None]:
    """The search the options ask for, and the function that is its objective, where one is named."""
    known = {row[0] for row in _SEARCH_FIELDS} | {"seed", "exclude"}
    given = {key: value for key, value in settings.items() if key in known and value is not None}
    objective = given.get("objective", "")
    function = given.pop("objective") if ":" in objective else None
    search = replace(_SEARCHES[preset_of(settings)], **given)
    OBJECTIVES.find(search.objective)
    EVALUATIONS.find(search.evaluation)
    return search, function


def preset_of(settings: dict[str, Any]) -> str:
    """The preset that the options start from; a strategy that is named alone brings its own."""
    preset = settings.get("preset") or settings.get("strategy") or "guided"
    return preset if preset in _SEARCHES else "guided"  # a strategy that is none is refused where it is used


def finetune_config(settings: dict[str, Any], seed: int) -> FinetuneConfig:
    """The fine-tuning the options ask for."""
    return replace(_FINETUNES[preset_of(settings)], **finetune_settings(settings), seed=seed)


def finetune_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The fields of FinetuneConfig that were given, by their own names."""
    return {
        row[0]: settings[_PREFIX + row[0]]
        for row in _FINETUNE_FIELDS
        if settings[_PREFIX + row[0]] is not None
    }


def output_options(command: Command) -> Command:
    """Adds --device, --quiet and --json."""
    device = click.option("--device", help="auto, cpu, cuda, cuda:1 or mps. [auto, or as the run has it]")
    return under(
        OUTPUT,
        under(MACHINE, device),
        click.option("--quiet", is_flag=True, help="Print the final table only."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line for every event."),
    )(command)


def run_argument(command: Command) -> Command:
    """Adds the argument RUN, passed on as `run`."""
    return click.argument("run", type=click.Path(path_type=Path))(command)


def _option(
    flag: str, name: str, row: tuple[str, Any, str | None, str, bool], values: tuple[Any, ...]
) -> Callable[[Any], Any]:
    """An option whose help ends with its value: ours, and the paper's where it has one."""
    field, kind, metavar, help_text, in_paper = row
    shown = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    note = shown[0]
    if len(shown) > 1 and in_paper:
        note += ", the paper's value" if shown[0] == shown[1] else f"; paper: {shown[1]}"
        if field == "epochs":
            note += " for CIFAR-10, 100 for CIFAR-100"
    elif len(set(shown)) > 1:
        note += f"; with --preset paper: {shown[1]}"
    if kind is bool:
        flag += f"/--no-{flag.removeprefix('--')}"
    return click.option(flag, name, type=kind, default=None, metavar=metavar, help=f"{help_text} [{note}]")


def _shown_values(presets: Mapping[str, Any], field: str) -> tuple[Any, ...]:
    """The value of a field in each preset, ours first; or what the data decides it by."""
    if field in _FITTED:
        return (_FITTED[field],)
    found = (getattr(config, field) for config in presets.values())
    return tuple("none" if value is None else value for value in found)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
