"""`deeppruning pick`: choose the candidate of a finished run that meets limits, without searching again."""

from pathlib import Path
from typing import Any

import click

from deeppruning import api_runs
from deeppruning.cli.options.flags import IN_THE_RUN, GroupedCommand, flag, output_options, run_weights_option
from deeppruning.cli.options.run import run_argument, trust_options
from deeppruning.cli.options.search import target_option
from deeppruning.cli.running import save_one
from deeppruning.limits import Limits
from deeppruning.options import OUTPUT
from deeppruning.system.commands import command


@click.command(cls=GroupedCommand)
@run_argument
@target_option(required=True)
@flag("--replace", heading=OUTPUT, is_flag=True, help="Replace the run's last target instead of adding one.")
@run_weights_option
@trust_options("model", "data", "objective")
@output_options(IN_THE_RUN)
def pick(run: Path, target: Limits, replace: bool, **settings: Any) -> None:
    """Choose the best candidate of RUN within limits, fine-tune it as the run did, and save it as a target.

    Of all candidates that the search evaluated, this is the most accurate one within the limits or, if only
    the error is limited, the cheapest one. A limit on the error is checked on a tenth of the training images,
    which are then not trained on. If the command is stopped, run it again to continue. The first target of a
    run is saved as target.safetensors, the next one as target-2.safetensors.

    \b
    Example:
      deeppruning pick runs/mine --target flops=30%
      deeppruning pick runs/mine --target params=100k,latency=5ms --replace
    """
    again = command("pick", run, "--target", str(target).replace(" ", ""), *(["--replace"] * replace))
    save_one(api_runs.pick, run, again, settings, target=target, replace=replace)
