"""The command `deeppruning`: finds the subcommand, imports it, and turns errors into one line."""

import importlib
import os
import signal
import sys
from types import FrameType
from typing import Any

import click

from deeppruning.cli.completion import light_command
from deeppruning.errors import DeepPruningError, describe_raised, unknown, users_line
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.version import __version__

INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C
TERMINATED = 143  # and by SIGTERM, which schedulers and `timeout` send


class Terminated(KeyboardInterrupt):
    """SIGTERM: the program stops as by Ctrl-C, with the same hint how to continue."""


def exit_code(stopped: KeyboardInterrupt) -> int:
    """The exit code that shells expect of a program stopped in this way."""
    return TERMINATED if isinstance(stopped, Terminated) else INTERRUPTED


def _stop_on_sigterm() -> None:
    """Let SIGTERM stop the program as Ctrl-C does."""
    program = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() == program:
            raise Terminated
        signal.signal(number, signal.SIG_DFL)  # a forked process ends as usual
        os.kill(os.getpid(), number)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)


# Each command lives in deeppruning.cli.commands.<module> under its own name and is imported only when it is
# called: `deeppruning --help` must not wait for torch.
COMMANDS: dict[str, str] = {
    "demo": "Try it: train and prune a small network in a few minutes.",
    "train": "Train a network: your own, or one that comes with the package.",
    "evaluate": "Print the test error of a network.",
    "prune": "Search for pruned versions of a network and fine-tune the best.",
    "thin": "Make an ONNX file smaller and faster, without labels or training.",
    "resume": "Continue a run that was stopped.",
    "pick": "Choose a network of a run within other limits, without searching again.",
    "finetune": "Fine-tune any candidate of a run.",
    "report": "Write the HTML report of a run, and its plots.",
    "watch": "Serve the report of a run and update it live.",
    "export": "Write a network of a run as ONNX, torch.export, safetensors or a hub folder.",
    "compare": "Compare with other pruning methods at the same FLOPs.",
    "bench": "Measure whether the pruned networks of a run are really faster.",
    "data": "List the data sets, where they are and how to get them.",
    "models": "List the networks that come with the package (the zoo).",
}


class LazyGroup(click.Group):
    """A group that lists every command without importing any of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now; only its options if the tab key asks."""
        if cmd_name not in COMMANDS:
            return None
        light = light_command(cmd_name, COMMANDS[cmd_name]) if ctx.resilient_parsing else None
        if light is not None:  # the tab key was pressed
            return light
        module = importlib.import_module(f"deeppruning.cli.commands.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with SIGTERM turned into an orderly stop."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            # Commands that can be continued have handled it; this is the rest, including imports.
            click.echo("stopped", err=True)
            ctx.exit(exit_code(stopped))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one is answered with the nearest."""
        misspelt = args and not args[0].startswith("-") and args[0] not in COMMANDS
        if misspelt and not ctx.resilient_parsing:
            raise unknown("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with one line each, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="deeppruning")
def cli() -> None:
    """Make a trained convolutional network small enough to deploy.

    \b
    Example:
      deeppruning demo
      deeppruning train resnet20 --data digits --epochs 10 --out runs/base
      deeppruning prune resnet20 --weights runs/base/model.safetensors --data digits --out runs/mine
    """
    keep_freed_memory()


def main() -> None:
    """Entry point: an error of ours or of the user's code is one message and exit code 1."""
    _stop_on_sigterm()
    try:
        cli()
    except DeepPruningError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        if not users_line(error):
            raise
        click.echo(f"error: your code raised {describe_raised(error)}", err=True)
        sys.exit(1)
