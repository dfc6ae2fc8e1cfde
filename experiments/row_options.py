"""What a row's file of options asks for, read as `deeppruning prune --config` reads it; nothing is run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppruning.cli.commands.prune import prune
from deeppruning.cli.options.search import finetune_config, search_config
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.limits import Limits

HERE = Path(__file__).parent
NO_ROWS = ("paper.toml",)  # options of nothing: the paper's figures


@dataclass(frozen=True)
class RowOptions:
    """A row as its file has it: what is searched, how, and what for."""

    model: str
    data: str
    search: SearchConfig
    finetune: FinetuneConfig
    target: Limits
    model_options: dict[str, Any]
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None

    @classmethod
    def read(cls, *arguments: object) -> "RowOptions":
        """What these arguments of `prune` ask for, such as "--config" and a file."""
        with prune.make_context("prune", [str(argument) for argument in arguments]) as context:
            settings: dict[str, Any] = dict(context.params)
        search, _ = search_config(settings)
        finetune = finetune_config(settings, search.seed)
        rest = {name: settings[name] for name in ("model", "data", "target", "model_options", "mean", "std")}
        return cls(search=search, finetune=finetune, **rest)


def row_file(name: str) -> Path:
    """Where the options of a row are, whether or not there are any."""
    return HERE / f"{name}.toml"


def row_files() -> list[Path]:
    """The files of all rows."""
    return sorted(path for path in HERE.glob("*.toml") if path.name not in NO_ROWS)
