"""Flags, made one by one or from the options of a config, and listed by heading in a long --help."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

import click

from deeppruning.backends.limits import Timeout, read_timeout
from deeppruning.errors import InputError
from deeppruning.limits import LIMITS
from deeppruning.options import HEADINGS, MACHINE, NETWORK, OUTPUT, Option, described_options

DEVICES = "Device: auto, cpu, cuda, cuda:1 or mps."
IN_THE_RUN = "as in the run"
_OTHER = "Other options"
_ALL = "deeppruning.help-all"  # set in a context's meta by --help-all
# Flags that people try in place of --target.
_TRIED = re.compile(rf"--(?:max|target|limit|keep|least|min)?-?({'|'.join(LIMITS)}|parameters)(?:-.*)?")


class Flag(click.Option):
    """An option with a heading in a long --help; the short one shows only `common` options."""

    def __init__(self, *names: Any, heading: str = _OTHER, common: bool = False, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.heading = heading
        self.common = common


def flag(*names: str, heading: str, **settings: Any) -> Callable[[Any], Any]:
    """`click.option` with a heading."""
    return click.option(*names, cls=Flag, heading=heading, **settings)


def together(*flags: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator that adds all of these, listed in this order."""

    def decorate(command: Any) -> Any:
        for each in reversed(flags):
            command = each(command)
        return command

    return decorate


class GroupedCommand(click.Command):
    """A command that lists its options by heading; a `brief` one only the common ones without --help-all."""

    def __init__(self, *args: Any, brief: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.brief = brief
        if brief:
            self.params.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_print_full_help,
                    help="Show all options and exit.",
                )
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option is answered with the one that is probably meant."""
        ctx.meta["given"] = list(args)  # as they were written
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            meant = self._meant_flag(error.option_name)
            if meant is None:
                raise
            message = f"No such option {error.option_name!r}. Did you mean {meant}?"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

    def _meant_flag(self, tried: str) -> str | None:
        """The flag that an unknown one probably means."""
        flags = {name for parameter in self.params for name in parameter.opts}
        finetune = f"--finetune-{tried.removeprefix('--')}"
        target = _TRIED.fullmatch(tried)
        if finetune in flags:
            return finetune
        if target is None or "--target" not in flags:
            return None
        example = LIMITS[target[1].replace("parameters", "params")].example
        return f"--target {example.partition(' ')[0]}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading that has options here."""
        short = self.brief and _ALL not in ctx.meta
        hidden = 0
        sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*HEADINGS, _OTHER)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or not isinstance(parameter, click.Option):
                continue
            if short and isinstance(parameter, Flag) and not parameter.common:
                hidden += 1
            else:
                sections[getattr(parameter, "heading", _OTHER)].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: {ctx.command_path} --help-all")


def _print_full_help(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """--help-all: the help with every option."""
    if asked and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class Parsed(click.ParamType):  # type: ignore[type-arg]
    """A value that a function reads from a text, or from what a file holds."""

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that the function reads from the flag's text."""
        try:
            return self.parse(value)
        except InputError:  # it says what is wrong
            raise
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not {self.name}", param, ctx)


def _read_number_list(value: Any) -> tuple[float, ...]:
    """Numbers from a text with commas."""
    return tuple(float(part) for part in (value.split(",") if isinstance(value, str) else value))


def _read_size(value: Any) -> tuple[int, int]:
    """Height and width from a side or HEIGHTxWIDTH; in a file also from a number or a list of two."""
    sides = value.lower().split("x") if isinstance(value, str) else value
    sides = [str(side) for side in (sides if isinstance(sides, (list, tuple)) else [sides])]
    if len(sides) > 2 or not all(side.isascii() and side.isdigit() and int(side) > 0 for side in sides):
        raise ValueError
    return int(sides[0]), int(sides[-1])


NUMBERS = Parsed("a list of numbers such as 0.485,0.456,0.406", _read_number_list)
SIZE = Parsed("a side such as 32 or a height and width such as 32x48", _read_size)
TIME_LIMIT = Parsed("a time limit", read_timeout)


def _click_type_of(kind: Any) -> Any:
    """The click type of a flag for an option of this Python type."""
    if get_origin(kind) is tuple:
        return {str: str, float: NUMBERS, int: SIZE}[get_args(kind)[0]]
    return {Path: click.Path(path_type=Path), Timeout: TIME_LIMIT}.get(kind, kind)


def option_flags(
    config: type,
    *,
    prefix: str = "",
    heading: str = "",
    short: bool = False,
    inherited: bool = False,
    leave_out: Collection[str] = (),
    choices: Mapping[str, Collection[str]] | None = None,
    help: Mapping[str, str] | None = None,
    paper: bool = True,
) -> Callable[[Any], Any]:
    """A flag for each described option of a config, None where not given.

    Parameters are called `prefix` + field, and so are flags unless the option is `unprefixed` or all are
    `short`. They stand under one `heading` or each under its own. `inherited` ones default to a run's values.
    `choices` and `help` replace those of fields whose values a registry knows. Without `paper`, the values of
    the paper's preset are not mentioned.
    """
    made = []
    for each in fields(config):
        if each.name in leave_out or "option" not in each.metadata:
            continue
        described, kind = described_options(config)[each.name]
        allowed = (choices or {}).get(each.name, described.choices)
        name = each.name if short or described.unprefixed else prefix + each.name
        dashed = name.replace("_", "-")
        about = (help or {}).get(each.name, described.help)
        note = IN_THE_RUN if inherited else _default_note(described, each.default, paper=paper)
        settings: dict[str, Any] = {"type": _click_type_of(kind), "common": described.common}
        if get_origin(kind) is tuple and get_args(kind)[0] is str:
            settings["multiple"] = True
        else:
            settings["default"] = None
        made.append(
            flag(
                f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}",
                prefix + each.name,
                heading=heading or described.heading,
                metavar=described.metavar or "|".join(allowed) or None,
                help=f"{about} [{note}]" if note else about,
                **settings,
            )
        )
    return together(*made)


def _default_note(described: Option, default: Any, *, paper: bool) -> str:
    """The default and, if wanted, the paper's value or that of its preset."""
    if described.default or default is None:
        stated = paper and described.stated and described.paper is not None
        return f"{described.default}; paper: {described.paper}" if stated else described.default
    ours, theirs = (
        str(value).lower() if isinstance(value, bool) else str(value) for value in (default, described.paper)
    )
    if described.stated and paper:
        return f"{ours}, the paper's value" if ours == theirs else f"{ours}; paper: {theirs}"
    return ours if ours == theirs or not paper else f"{ours}; with --preset paper: {theirs}"


def given_options(config: type, settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The options of a config that a command's settings give, by the names of their fields."""
    names = [each.name for each in fields(config)]
    return {name: settings[prefix + name] for name in names if settings.get(prefix + name) is not None}


def _weights_option(help: str) -> Callable[[Any], Any]:
    """`--weights`: a file, or None."""
    return flag("--weights", heading=NETWORK, common=True, type=click.Path(path_type=Path), help=help)


weights_option = _weights_option(
    "Weights file: .safetensors, or a file written by torch.save (.pt, .pth, .th, .pth.tar)."
)
run_weights_option = _weights_option("Weights file of the original network, if it has moved. [as in the run]")


def out_option(help: str) -> Callable[[Any], Any]:
    """`--out`, passed on as `out`: a path or None."""
    return flag("--out", heading=OUTPUT, common=True, type=click.Path(path_type=Path), help=help)


def threads_option(default: str) -> Callable[[Any], Any]:
    """`--threads`, passed on as `threads`, None where not given."""
    return flag(
        "--threads", heading=MACHINE, type=click.IntRange(min=1), help=f"Number of CPU threads. [{default}]"
    )


def output_options(default_device: str) -> Callable[[Any], Any]:
    """`--device`, `--quiet` and `--json`."""
    return together(
        flag("--device", heading=MACHINE, common=True, help=f"{DEVICES} [{default_device}]"),
        flag("--quiet", heading=OUTPUT, common=True, is_flag=True, help="Print the final table only."),
        flag(
            "--json",
            "as_json",
            heading=OUTPUT,
            is_flag=True,
            help="Print each event as a line of JSON.",
        ),
    )
