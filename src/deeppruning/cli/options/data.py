"""The options by which every command is told its data, and the call that loads what they name."""

from collections.abc import Callable
from pathlib import Path

import click

from deeppruning.cli.options.headings import DATA, Command, under
from deeppruning.data.images import Normalization
from deeppruning.data.registry import ENVIRONMENT, load_data
from deeppruning.data.splits import DataSplits
from deeppruning.errors import InputError

# What load_from_options takes beside the data's name.
LOADING = ("data_dir", "download", "image_size", "image_resize", "loading_workers", "mean", "std")


def _parse_size(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    sides = value.lower().split("x")
    if len(sides) > 2 or not all(side.isascii() and side.isdigit() and int(side) > 0 for side in sides):
        raise click.BadParameter(f"{value!r} is not a side such as 32 or a height and width such as 32x48")
    return int(sides[0]), int(sides[-1])


def _parse_numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 0.485,0.456,0.406") from error


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help=f"Folder with data sets; default ${ENVIRONMENT}, or ./data and ~/.cache/deeppruning.",
)
download_option = click.option(
    "--download", is_flag=True, help="Fetch the data set into the data folder if it is not there."
)
image_size_option = click.option(
    "--image-size",
    metavar="SIDE|HxW",
    callback=_parse_size,
    help="Resize all images to this size; pictures of a folder keep their proportions and are cropped to it.",
)
image_resize_option = click.option(
    "--image-resize",
    metavar="SIDE",
    type=click.IntRange(min=1),
    help="Shorter side of pictures of a folder before they are cropped to --image-size, at random in "
    "training and in the middle elsewhere. [that of --image-size]",
)
loading_workers_option = click.option(
    "--loading-workers",
    type=click.IntRange(min=0),
    help="Processes that decode pictures beside each one that trains or evaluates. [its threads, 4 at most]",
)
mean_option = click.option(
    "--mean",
    metavar="M,M,M",
    callback=_parse_numbers,
    help="Mean of each channel on 0..1, instead of the data set's; goes with --std.",
)
std_option = click.option(
    "--std",
    metavar="S,S,S",
    callback=_parse_numbers,
    help="Deviation of each channel on 0..1, instead of the data set's; goes with --mean.",
)


def data_option(default: str | None = None, *, required: bool = False) -> Callable[[Command], Command]:
    """`--data`, with a default or required as the command needs it."""
    return click.option(
        "--data",
        metavar="DATA",
        default=default,
        required=required,
        show_default=default is not None,
        help="A name (see `deeppruning data`), a folder of class folders, a .npz file, "
        "package.module:function or file.py:function.",
    )


def data_options(default: str | None = None, *, required: bool = False) -> Callable[[Command], Command]:
    """All of them: adds data and those of LOADING to a command's parameters."""
    sized = (image_size_option, image_resize_option, loading_workers_option)
    where = (data_option(default, required=required), data_dir_option, download_option)
    return under(DATA, *where, *sized, mean_option, std_option)


def load_from_options(
    data: str,
    *,
    data_dir: Path | None = None,
    download: bool = False,
    image_size: tuple[int, int] | None = None,
    image_resize: int | None = None,
    loading_workers: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> DataSplits:
    """The data that the options name, normalised as they say; downloads are told on the error stream.

    A set that comes in one piece is always parted the same way, whatever a command's own seed: a network
    trained with one seed must not meet its training images when it is tested with another.
    """
    if (mean is None) != (std is None):
        raise InputError("--mean and --std go together; give both or none")
    splits = load_data(
        data,
        data_dir=data_dir,
        download=download,
        image_size=image_size,
        image_resize=image_resize,
        loading_workers=loading_workers,
        say=lambda message: click.echo(message, err=True),
    )
    if mean is None or std is None:
        return splits
    return splits.with_normalization(Normalization(mean, std))
