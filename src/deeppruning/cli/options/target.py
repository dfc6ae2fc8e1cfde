"""`--target`: limits on the command line, and what to write where people try a flag in its place."""

import re
from collections.abc import Callable

import click

from deeppruning.cli.options.headings import SEARCH, Command, GroupedCommand, under
from deeppruning.limits import Limits

_TRIED = re.compile(
    r"--(?:max|target|limit|keep|least|min)?-?(flops|params|parameters|size|latency|error)(?:-.*)?"
)
_EXAMPLES = {"flops": "40%", "params": "30%", "size": "1MB", "latency": "5ms", "error": "+1%"}


class SuggestsTarget(GroupedCommand):
    """A command that answers `--max-flops` and the like with the target that is meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As ever, but for what an unknown option is answered with."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            tried = _TRIED.fullmatch(error.option_name)
            if tried is None:
                raise
            name = tried[1].replace("parameters", "params")
            meant = f"Did you mean --target {name}={_EXAMPLES[name]}?"
            raise click.NoSuchOption(
                error.option_name, f"No such option {error.option_name!r}. {meant}", ctx=ctx
            ) from None


def target_option(*, required: bool = False) -> Callable[[Command], Command]:
    """Adds --target, passed on as `target`, which are Limits."""
    return under(
        SEARCH,
        click.option(
            "--target",
            multiple=True,
            required=required,
            metavar="NAME=LIMIT",
            callback=lambda context, parameter, texts: Limits.parse(texts),
            help="What the network may cost or err at most: flops=40%, params=100k, size=1MB, latency=5ms, "
            "error=+1% (above the original's) or error=8%; several between commas, or repeated."
            + ("" if required else " [none]"),
        ),
    )
