"""`deeppruning data`: which data sets are known, where they are, and whether one loads."""

import json
from typing import Any

import click
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from deeppruning.cli.options.flags import option_flags
from deeppruning.cli.options.inputs import DataOptions
from deeppruning.data.registry import DataStatus, list_data
from deeppruning.data.splits import DataSplits
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
    if name is None and settings["download"]:
        raise InputError(f"--download needs a name: {command('data', 'cifar10', '--download')}")
    if name is None:
        statuses = list_data(settings["data_dir"])
        record: Any = [_status_record(status) for status in statuses]
    else:
        splits = DataOptions.given({**settings, "data": name}).load()
        record = _splits_record(splits)
    if as_json:
        click.echo(json.dumps(record, indent=2))
    elif name is None:
        Console().print(_status_table(statuses))
    else:
        _print_splits(Console(), splits, record)


def _status_record(status: DataStatus) -> dict[str, Any]:
    """Where a data set is, as JSON."""
    return {
        "name": status.data.name,
        "about": status.data.about,
        "found": str(status.path) if status.path else None,
        "looked_in": [str(folder) for folder in status.searched],
        "looked_for": status.data.looked_for,
        "how_to_get": status.data.how_to_get,
    }


def _status_table(statuses: list[DataStatus]) -> Table:
    """All data sets and where they are, as a table."""
    # Two columns, because paths and addresses need the width of the terminal.
    columns = Column(no_wrap=True, style="bold"), Column(overflow="fold")
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 1, 0), show_header=False)
    for status in statuses:
        if status.path:
            where = f"[green]found[/green] {escape(str(status.path))}"
        else:
            looked = ", ".join(str(folder) for folder in status.searched)
            where = (
                f"[yellow]not found[/yellow] in {escape(looked)}\nto get it: {escape(status.data.how_to_get)}"
            )
        table.add_row(status.data.name, f"{status.data.about}\n{where}")
    return table


def _splits_record(splits: DataSplits) -> dict[str, Any]:
    """The parts of a data set that was loaded, as JSON."""
    parts = {"train": splits.train, "test": splits.test}
    counts = {name: part.labels.bincount(minlength=part.num_classes).tolist() for name, part in parts.items()}
    normalization = splits.train.normalization
    return {
        "name": splits.name,
        "image_shape": list(splits.train.image_shape),
        "classes": list(splits.train.classes),
        **{name: {"images": len(part), "per_class": counts[name]} for name, part in parts.items()},
        "mean": list(normalization.mean) if normalization else None,
        "std": list(normalization.std) if normalization else None,
    }


def _print_splits(console: Console, splits: DataSplits, record: dict[str, Any]) -> None:
    """Print classes and sizes of a data set that was loaded."""
    train, test, normalization = record["train"], record["test"], splits.train.normalization
    counted = f"{train['images']} training, {test['images']} test images"
    console.print(f"[bold]{escape(splits.name)}[/bold] loads: {counted}")
    channels, height, width = splits.train.image_shape
    console.print(f"images: {channels} channel(s), {height} x {width} pixels, {splits.train.dtype}")
    if normalization:
        console.print(f"normalisation: mean {normalization.mean}, std {normalization.std}")
    else:
        scaled = "only scaled to 0..1" if splits.train.dtype == torch.uint8 else "used as they are"
        console.print(f"normalisation: none, images are {scaled}")
    table = Table("class", Column("training", justify="right"), Column("test", justify="right"))
    rows = list(zip(record["classes"], train["per_class"], test["per_class"], strict=True))
    rest = rows[CLASSES_SHOWN:]
    if rest:
        rows[CLASSES_SHOWN:] = [
            (f"{len(rest)} more", sum(row[1] for row in rest), sum(row[2] for row in rest))
        ]
    for label, *images in rows:
        table.add_row(escape(label), *map(str, images))
    console.print(table)
