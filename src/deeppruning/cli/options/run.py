"""Options of commands that take a run: whether its code may be run, and the images for int8."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.options.flags import flag, together
from deeppruning.errors import InputError
from deeppruning.exporting import MaterialSource
from deeppruning.options import DATA, ELSEWHERE, OUTPUT
from deeppruning.runs import RunFolder
from deeppruning.tracking import TRACKERS

_CODE = {
    "model": "Code of the network: package.module:factory or file.py:factory. [as in the run]",
    "data": "The data, in any form that `deeppruning prune` takes. [as in the run]",
    "objective": "Function to use as the objective. [as in the run]",
}
run_argument = click.argument("run", type=click.Path(path_type=Path))


def trust_options(*kinds: str) -> Callable[[Any], Any]:
    """Adds --trust-run and an option for each of these kinds of code; `Vouched.take` takes them."""
    trust = flag(
        "--trust-run", heading=ELSEWHERE, is_flag=True,
        help="Run the code that the run names (network, data, objective), even if someone else made the run "
        "or it was made on another machine.",
    )  # fmt: skip
    named = [
        flag(f"--{kind}", f"named_{kind}", heading=ELSEWHERE, metavar="SPEC", help=_CODE[kind])
        for kind in kinds
    ]
    return together(trust, *named)


def track_options(*, of_run: bool = False) -> Callable[[Any], Any]:
    """Adds --track, passed on as `track`: names, none if it is not given; of a run also --no-track."""
    names = "|".join(TRACKERS)
    record = (
        "Record the run with a tracker as it goes: TensorBoard, MLflow or Weights & Biases; may be repeated."
    )
    default = "as in the run" if of_run else "none"
    named = flag(
        "--track",
        heading=OUTPUT,
        multiple=True,
        metavar=names,
        help=f"{record} [{default}]",
    )
    none = flag(
        "--no-track", heading=OUTPUT, is_flag=True, help="Do not continue the records of the run's trackers."
    )
    return together(named, *([none] if of_run else []))


@dataclass(frozen=True)
class Vouched:
    """What the user says about a run's code: that it may be run, or what to use in its place."""

    trust_run: bool = False
    model: str | None = None
    data: str | None = None
    objective: str | None = None

    @classmethod
    def take(cls, settings: dict[str, Any]) -> "Vouched":
        """Move these options out of a command's settings."""
        named = {kind: settings.pop(f"named_{kind}", None) for kind in _CODE}
        return cls(trust_run=settings.pop("trust_run"), **named)

    def check(self, run: RunFolder, *kinds: str) -> None:
        """Raise if code of these kinds, not replaced here, would be run although nobody vouches for it."""
        if self.objective is not None and "objective" not in run.config:
            raise InputError(f"{run.path} has no objective of your own; leave out --objective")
        if not self.trust_run:
            run.refuse_foreign_code([kind for kind in kinds if getattr(self, kind, None) is None])


def int8_options(help: str) -> Callable[[Any], Any]:
    """Adds --int8, --data-dir and --test-images."""
    return together(
        flag("--int8", heading=OUTPUT, is_flag=True, help=help),
        flag(
            "--data-dir",
            heading=DATA,
            type=click.Path(path_type=Path),
            help="With --int8: folder with data sets. [as in the run]",
        ),
        flag(
            "--test-images",
            heading=DATA,
            type=click.IntRange(min=1),
            help="With --int8: number of images for the test error. [all]",
        ),
    )


def int8_images(
    vouched: Vouched, int8: bool, data_dir: Path | None, test_images: int | None
) -> MaterialSource | None:
    """Where the images for int8 come from; None without --int8, which the other options need."""
    given = {"--data": vouched.data, "--data-dir": data_dir, "--test-images": test_images}
    if int8:
        return MaterialSource(
            data=vouched.data, data_dir=data_dir, test_images=test_images, trust_run=vouched.trust_run
        )
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InputError(f"{' and '.join(unused)} need --int8; add it, or leave them out")
    return None
