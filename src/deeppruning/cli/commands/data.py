"""`deeppruning data`: which data sets are known, where they are, and whether one loads."""

import json
from typing import Any

import click
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deeppruning.cli.options.flags import option_flags
from deeppruning.cli.options.inputs import DataOptions
from deeppruning.data.registry import DataStatus, list_data
from deeppruning.data.splits import DataSplits
from deeppruning.data.stream import Images
from deeppruning.errors import InputError
from deeppruning.system.commands import command

CLASSES_SHOWN = 20


@click.command()
@click.argument("name", required=False, metavar="[DATA]")
@option_flags(DataOptions, leave_out=["data", "image_resize", "loading_workers", "mean", "std"])
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def data(name: str | None, as_json: bool, **settings: Any) -> None:
    """List the data sets known by name, or load DATA and show what is in it.

    DATA is a name, a folder with one folder per class (inside train/ and test/, or split at random), a .npz
    file (images, labels or x_train, y_train, x_test, y_test), or your own function that returns training and
    test images.

    \b
    Example:
      deeppruning data
      deeppruning data digits
      deeppruning data cifar10 --data-dir ~/data --download
      deeppruning data photos/ --image-size 64
      deeppruning data mydata.py:load --json
    """
    console = Console()
    if name is None:
        if settings["download"]:
            raise InputError(f"--download needs a name: {command('data', 'cifar10', '--download')}")
        statuses = list_data(settings["data_dir"])
        if as_json:
            click.echo(json.dumps([_status_record(status) for status in statuses], indent=2))
        else:
            console.print(_status_table(statuses))
        return
    splits = DataOptions.given({**settings, "data": name}).load()
    if as_json:
        click.echo(json.dumps(_splits_record(splits), indent=2))
    else:
        _print_splits(console, splits)


def _status_record(status: DataStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "about": status.about,
        "found": str(status.found) if status.found else None,
        "looked_in": [str(folder) for folder in status.looked],
        "looked_for": status.looked_for,
        "how_to_get": status.how_to_get,
    }


def _status_table(statuses: list[DataStatus]) -> Table:
    # Two columns, because paths and addresses need the width of the terminal.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for status in statuses:
        if status.found:
            where = f"[green]found[/green] {escape(str(status.found))}"
        else:
            looked = ", ".join(str(folder) for folder in status.looked)
            where = f"[yellow]not found[/yellow] in {escape(looked)}\nto get it: {escape(status.how_to_get)}"
        table.add_row(status.name, f"{status.about}\n{where}")
    return table


def _counts(part: Images) -> list[int]:
    counts: list[int] = part.labels.bincount(minlength=part.num_classes).tolist()
    return counts


def _splits_record(splits: DataSplits) -> dict[str, Any]:
    normalization = splits.train.normalization
    return {
        "name": splits.name,
        "image_shape": list(splits.train.image_shape),
        "classes": list(splits.train.classes),
        "train": {"images": len(splits.train), "per_class": _counts(splits.train)},
        "test": {"images": len(splits.test), "per_class": _counts(splits.test)},
        "mean": list(normalization.mean) if normalization else None,
        "std": list(normalization.std) if normalization else None,
    }


def _print_splits(console: Console, splits: DataSplits) -> None:
    channels, height, width = splits.train.image_shape
    normalization = splits.train.normalization
    counted = f"{len(splits.train)} training, {len(splits.test)} test images"
    console.print(f"[bold]{escape(splits.name)}[/bold] loads: {counted}")
    console.print(f"images: {channels} channel(s), {height} x {width} pixels, {splits.train.dtype}")
    if normalization:
        console.print(f"normalisation: mean {normalization.mean}, std {normalization.std}")
    else:
        scaled = "only scaled to 0..1" if splits.train.dtype == torch.uint8 else "used as they are"
        console.print(f"normalisation: none, images are {scaled}")
    table = Table()
    table.add_column("class")
    table.add_column("training", justify="right")
    table.add_column("test", justify="right")
    rows = list(zip(splits.train.classes, _counts(splits.train), _counts(splits.test), strict=True))
    for label, train, test in rows[:CLASSES_SHOWN]:
        table.add_row(escape(label), str(train), str(test))
    if len(rows) > CLASSES_SHOWN:
        rest = rows[CLASSES_SHOWN:]
        table.add_row(
            f"{len(rest)} more",
            str(sum(train for _, train, _ in rest)),
            str(sum(test for _, _, test in rest)),
        )
    console.print(table)
