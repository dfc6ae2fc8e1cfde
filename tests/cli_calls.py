"""A command called as a user calls it, for every test of the command line."""

import click
from click.testing import CliRunner, Result

from deeppruning.cli.main import cli
from deeppruning.errors import DeepPruningError


def call(*arguments: object, command: click.Command = cli) -> Result:
    """What the command did; an error that it would print is raised, any other ending fails the test."""
    done = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if isinstance(done.exception, DeepPruningError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done
