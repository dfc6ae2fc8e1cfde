"""`deeppruning models`: the networks of the zoo with their depth, parameters and FLOPs."""

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Column, Table

from deeppruning.models import ModelSummary, describe_model, list_models
from deeppruning.system.device import torch_threads


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def models(as_json: bool) -> None:
    """List the networks that come with the package (the zoo) with depth, parameters and FLOPs.

    Depth is the number of convolutions and linear layers on the longest path. FLOPs are multiply-adds for one
    3x32x32 image and 10 classes; every network can also be built for other image sizes (8x8 or larger) and
    numbers of classes.

    Other commands take options of the network as --model-option KEY=VALUE: shortcut=pad or shortcut=conv for
    ResNets, and dropout=0.5, for example, for all networks except ResNets and DenseNets.

    \b
    Example:
      deeppruning models
      deeppruning models --json
    """
    with torch_threads(1):  # one image is too little work for several
        summaries = [describe_model(name) for name in list_models()]
    if as_json:
        click.echo(json.dumps([asdict(summary) for summary in summaries], indent=2))
    else:
        Console().print(_table_of_models(summaries))


def _table_of_models(summaries: list[ModelSummary]) -> Table:
    # No padding at the edges: every row then fits one line of an 80-column terminal.
    numbers = (Column(name, justify="right", no_wrap=True) for name in ("depth", "parameters", "FLOPs"))
    table = Table(Column("name", no_wrap=True), *numbers, "what it is", box=None, pad_edge=False)
    table.caption = "FLOPs: multiply-adds for one 3x32x32 image, 10 classes"
    for summary in summaries:
        table.add_row(
            summary.name,
            str(summary.depth),
            f"{summary.params / 1e6:.2f} M",
            f"{summary.flops / 1e6:.1f} M",
            summary.about,
        )
    return table
