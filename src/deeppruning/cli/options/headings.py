"""Headings in a long --help: what each option is about, and the command that prints them by that."""

from collections.abc import Callable
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
    """A command whose --help lists its options by heading."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading that has options here."""
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*ORDER, _OTHER)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            # Newer versions of click have a record for an argument, too, which the first line tells already.
            if record is not None and isinstance(parameter, click.Option):
                sections[heading_of(parameter)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def heading_of(parameter: click.Parameter) -> str:
    """The heading that an option stands under."""
    return str(parameter.__dict__.get(_KEY) or _OTHER)
