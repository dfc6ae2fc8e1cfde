"""Headings in a long --help: what each option is about, and the command that prints them by that."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

NETWORK, DATA, SEARCH = "Network", "Data", "Search"
JUDGING, CUTTING = "How a candidate is judged", "What may be cut"
TRAINING, FINETUNING, COMPARING = "Training", "Fine-tuning", "What is compared"
MACHINE, OUTPUT, FROM_ELSEWHERE = "Machine", "Output", "Options and code from elsewhere"
ORDER = (
    *(NETWORK, DATA, COMPARING, SEARCH, JUDGING, CUTTING, TRAINING, FINETUNING),
    *(MACHINE, OUTPUT, FROM_ELSEWHERE),
)
_OTHER = "Other options"
_KEY = "heading"  # under which an option keeps its own
_ALL = "deeppruning.help-all"  # set where all options are asked for


def under(heading: str, *options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Adds these options, in their order, and files them under a heading."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            known = len(getattr(command, "__click_params__", ()))
            command = option(command)
            for parameter in command.__click_params__[known:]:  # type: ignore[attr-defined]
                parameter.__dict__.setdefault(_KEY, heading)
        return command

    return decorate


class GroupedCommand(click.Command):
    """A command whose --help lists its options by heading.

    Where the `usual` ones are named, the rest is listed by --help-all only.
    """

    def __init__(self, *args: Any, usual: Collection[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.usual = frozenset(usual)
        if usual:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_print_all,
                    help="Show all options and exit.",
                )
            )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading that has options here."""
        short = bool(self.usual) and _ALL not in ctx.meta
        left_out = 0
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*ORDER, _OTHER)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            # Newer versions of click have a record for an argument, too, which the first line tells already.
            if record is None or not isinstance(parameter, click.Option):
                continue
            if short and heading_of(parameter) != _OTHER and not self.usual & {*parameter.opts}:
                left_out += 1
            else:
                sections[heading_of(parameter)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: {ctx.command_path} --help-all")


def _print_all(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def heading_of(parameter: click.Parameter) -> str:
    """The heading that an option stands under."""
    return str(parameter.__dict__.get(_KEY) or _OTHER)
