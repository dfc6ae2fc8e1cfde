"""The options of int8, and the images they name to calibrate and to test on."""

from collections.abc import Callable
from pathlib import Path

import click

from deeppruning.cli.options.data import data_dir_option
from deeppruning.cli.options.headings import DATA, OUTPUT, Command, under
from deeppruning.errors import InputError
from deeppruning.exporting import MaterialSource

_TEST_IMAGES = click.option(
    "--test-images",
    type=click.IntRange(min=1),
    help="With --int8: measure the test error on so many. [all]",
)


def int8_options(about: str) -> Callable[[Command], Command]:
    """Adds int8, data_dir and test_images to a command's parameters."""

    def decorate(command: Command) -> Command:
        command = under(DATA, data_dir_option, _TEST_IMAGES)(command)
        return under(OUTPUT, click.option("--int8", is_flag=True, help=about))(command)

    return decorate


def material_source(
    int8: bool, data: str | None, data_dir: Path | None, test_images: int | None, trust_run: bool
) -> MaterialSource | None:
    """Where the images come from; None without --int8, which all the others go with."""
    given = {"--data": data, "--data-dir": data_dir, "--test-images": test_images}
    if not int8:
        idle = [name for name, value in given.items() if value is not None]
        if idle:
            raise InputError(f"{' and '.join(idle)} are for --int8 only; add it, or leave them out")
        return None
    return MaterialSource(data=data, data_dir=data_dir, test_images=test_images, trust_run=trust_run)
