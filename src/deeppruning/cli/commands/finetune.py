"""`deeppruning finetune`: fine-tune any candidate of a run, not only the three selected ones."""

from pathlib import Path
from typing import Any

import click

from deeppruning import api_runs
from deeppruning.cli.options.flags import (
    IN_THE_RUN,
    GroupedCommand,
    flag,
    output_options,
    run_weights_option,
    threads_option,
)
from deeppruning.cli.options.run import run_argument, trust_options
from deeppruning.cli.options.search import finetune_options, finetune_settings
from deeppruning.cli.running import save_one
from deeppruning.config import FinetuneConfig
from deeppruning.options import FINETUNING
from deeppruning.runs import RunFolder


@click.command(cls=GroupedCommand)
@run_argument
@flag(
    "--candidate", heading=FINETUNING, type=int, required=True, help="Id of the candidate, as in the report."
)
@finetune_options(of_run=True)
@threads_option(IN_THE_RUN)
@run_weights_option
@trust_options("model", "data", "objective")
@output_options(IN_THE_RUN)
def finetune(run: Path, candidate: int, threads: int | None, **settings: Any) -> None:
    """Fine-tune one candidate of RUN on all training images and save it there as candidate-ID.safetensors.

    Options that are not given are those of the run. If the command is stopped, run it again to continue. At
    the end the run's report is rewritten to include this network.

    \b
    Example:
      deeppruning finetune runs/mine --candidate 17
      deeppruning finetune runs/mine --candidate 17 --minutes 30
      deeppruning finetune runs/mine --candidate 17 --epochs 100 --distill 0.5
    """
    with RunFolder.open(run, read_only=True) as opened:
        recorded = FinetuneConfig.from_table(opened.config["finetune"])
    options = recorded.changed_by(finetune_settings(settings))
    again = "the same command"
    save_one(api_runs.finetune, run, again, settings, candidate=candidate, threads=threads, finetune=options)
