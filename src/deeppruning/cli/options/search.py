"""The options of the search, its target and fine-tuning on the command line, and the configs they make."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from deeppruning.cli.options.flags import flag, given_options, option_flags, together
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.limits import EXAMPLES, Limits
from deeppruning.objectives import OBJECTIVES
from deeppruning.options import FINETUNING, SEARCH
from deeppruning.searching.evaluations import EVALUATIONS

_SEARCHES: dict[str, Callable[..., SearchConfig]] = {"guided": SearchConfig, "paper": SearchConfig.paper}
_FINETUNINGS = {"guided": FinetuneConfig(), "paper": FinetuneConfig.paper()}
_PREFIX = "finetune_"

search_options = together(
    flag(
        "--preset",
        heading=SEARCH,
        common=True,
        type=click.Choice(list(_SEARCHES)),
        help="Defaults of the search and of fine-tuning: our own (guided) or the paper's (paper); options "
        "that you give override them. [guided]",
    ),
    option_flags(
        SearchConfig,
        choices={"evaluation": EVALUATIONS, "objective": (*OBJECTIVES, "FUNCTION")},
        help={
            "evaluation": "How a candidate is evaluated: "
            + ", or ".join(f"{kind.about} ({kind.name})" for kind in EVALUATIONS.values())
            + "."
        },
    ),
)


def finetune_options(*, of_run: bool) -> Callable[[Any], Any]:
    """Adds the options of FinetuneConfig: --finetune-epochs and so on, or --epochs for those `of_run`.

    The parameters are called finetune_epochs and so on in both cases.
    """
    return option_flags(
        FinetuneConfig,
        prefix=_PREFIX,
        heading=FINETUNING,
        short=of_run,
        inherited=of_run,
        leave_out=["seed"],
    )


def target_option(*, required: bool = False) -> Callable[[Any], Any]:
    """Adds --target, passed on as `target`, which are Limits."""
    return flag(
        "--target",
        heading=SEARCH,
        common=True,
        multiple=True,
        required=required,
        metavar="NAME=LIMIT",
        callback=lambda context, parameter, texts: Limits.parse(texts),
        help=f"Upper limits for the pruned network, for example {EXAMPLES}; several are separated by commas, "
        f"or the option is repeated.{'' if required else ' [none]'}",
    )


def search_config(settings: Mapping[str, Any]) -> tuple[SearchConfig, str | None]:
    """The search that the options ask for, and the function that is its objective, if one is named."""
    given = given_options(SearchConfig, settings)
    function = given.pop("objective") if ":" in given.get("objective", "") else None
    search = _SEARCHES[_preset_of_flags(settings)](**given)
    OBJECTIVES.find(search.objective)
    EVALUATIONS.find(search.evaluation)
    return search, function


def finetune_config(settings: Mapping[str, Any], seed: int) -> FinetuneConfig:
    """The fine-tuning that the options ask for."""
    return _FINETUNINGS[_preset_of_flags(settings)].changed_by({**finetune_settings(settings), "seed": seed})


def finetune_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of FinetuneConfig that were given, by the names of its fields."""
    return given_options(FinetuneConfig, settings, _PREFIX)


def _preset_of_flags(settings: Mapping[str, Any]) -> str:
    """The preset to start from; --strategy alone brings its own."""
    preset = settings.get("preset") or settings.get("strategy")
    return preset if preset in _SEARCHES else "guided"  # the config refuses an unknown strategy
