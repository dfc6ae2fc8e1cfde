"""`deeppruning models`: the networks of the zoo with their depth, parameters and FLOPs."""

import json
from dataclasses import asdict

import click
import torch
from rich.console import Console
from rich.table import Table

from deeppruning.models import ModelSummary, describe_model, list_models


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def models(as_json: bool) -> None:
    """List the networks of the zoo with depth, parameters and FLOPs.

    Depth counts the convolutions and linear layers on the longest path. FLOPs are their multiply-adds
    for one 3x32x32 image and 10 classes; every network takes other images (from 8x8) and classes too.

    Options of the networks, for --model-option KEY=VALUE of other commands: shortcut=pad or shortcut=conv for
    ResNets, dropout=0.5 and the like for all but ResNets and DenseNets.

    \b
    Example:
      deeppruning models
      deeppruning models --json
    """
    # One image is too little work for several threads.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    summaries = [describe_model(name) for name in list_models()]
    torch.set_num_threads(threads)
    if as_json:
        click.echo(json.dumps([asdict(summary) for summary in summaries], indent=2))
    else:
        Console().print(_table(summaries))


def _table(summaries: list[ModelSummary]) -> Table:
    # No padding at the edges: every row then fits one line of an 80-column terminal.
    table = Table(caption="FLOPs: multiply-adds for one 3x32x32 image, 10 classes", box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("depth", "parameters", "FLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is")
    for summary in summaries:
        table.add_row(
            summary.name,
            str(summary.depth),
            f"{summary.params / 1e6:.2f} M",
            f"{summary.flops / 1e6:.1f} M",
            summary.about,
        )
    return table
