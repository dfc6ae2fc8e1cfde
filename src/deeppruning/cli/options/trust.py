"""--trust-run, and the options that name a run's code again: a folder is data until it is vouched for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.options.headings import FROM_ELSEWHERE, Command, under
from deeppruning.errors import InputError
from deeppruning.runs.folder import RunFolder
from deeppruning.system.user_code import make_importable

KINDS = {
    "model": "The network's code, package.module:factory or file.py:factory. [as the run names it]",
    "data": "The data, in any form that `deeppruning prune` takes. [as the run names it]",
    "objective": "The function that is the objective. [as the run names it]",
}
TRUST = "Run the code that a run made by someone else, or elsewhere, names for its network, data, objective."


def trust_options(*kinds: str) -> Callable[[Command], Command]:
    """Adds --trust-run and an option for each of these kinds of code; `Vouched.take` takes them."""

    named = [click.option(f"--{kind}", f"named_{kind}", metavar="SPEC", help=KINDS[kind]) for kind in kinds]
    return under(FROM_ELSEWHERE, click.option("--trust-run", is_flag=True, help=TRUST), *named)


@dataclass(frozen=True)
class Vouched:
    """What the user says of a run's code: that it may be run, or which is to be used in its place."""

    trust_run: bool = False
    model: str | None = None
    data: str | None = None
    objective: str | None = None

    @classmethod
    def take(cls, settings: dict[str, Any]) -> "Vouched":
        """What is said in a command's settings, which keep the rest."""
        named = {kind: settings.pop(f"named_{kind}", None) for kind in KINDS}
        return cls(trust_run=settings.pop("trust_run"), **named)

    def check(self, run: RunFolder, *kinds: str) -> None:
        """Raise if code of these kinds, not named here, would be run though nobody vouches for it."""
        if self.objective is not None and "objective" not in run.config:
            raise InputError(f"{run.path} has no objective of your own; leave out --objective")
        if not self.trust_run:
            run.refuse_foreign_code([kind for kind in kinds if getattr(self, kind, None) is None])

    def open_imports(self, run: RunFolder) -> None:
        """Let imports look where they did when the run was made; for runs that were checked only."""
        if "code" in run.config:
            make_importable(Path(run.config["code"]["folder"]))
