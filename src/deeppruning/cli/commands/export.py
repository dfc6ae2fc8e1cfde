"""`deeppruning export`: write a network of a run in a format that other programs read, and check it."""

import json
from pathlib import Path
from typing import Any

import click

from deeppruning.cli.options.flags import run_weights_option
from deeppruning.cli.options.run import Vouched, int8_images, int8_options, run_argument, trust_options
from deeppruning.errors import InputError
from deeppruning.exporting import FORMATS, export_network
from deeppruning.exporting.hub import check_push
from deeppruning.exporting.hub import push as push_folder
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.reporting import write_report
from deeppruning.roles import KNEE

_ABOUT = [format_.about for format_ in FORMATS.values()]


@click.command()
@run_argument
@click.option(
    "--solution", default=KNEE, metavar="NAME",
    help=f"knee, heavy, light, target, original, or candidate-ID once it is fine-tuned. [{KNEE}]",
)  # fmt: skip
@click.option(
    "--format", "format_", default="onnx", metavar="|".join(FORMATS),
    help=f"{', '.join(_ABOUT[:-1])}, or {_ABOUT[-1]}. [onnx]",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="File to write. [RUN/export/NAME.ENDING]")
@click.option(
    "--push", metavar="USER/NAME",
    help="With --format hub: upload the folder to this repository of Hugging Face, where you are logged in.",
)  # fmt: skip
@click.option(
    "--normalize", is_flag=True,
    help="Include the normalisation: the file then takes pixels in 0..255 as floats.",
)  # fmt: skip
@click.option(
    "--tolerance", type=click.FloatRange(min=0), default=TOLERANCE,
    help=f"Largest accepted difference from PyTorch's outputs. [{TOLERANCE}]",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print only the path of what was written.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as one JSON object.")
@int8_options("Quantise an ONNX file: static, per channel, calibrated on the sample of the search.")
@run_weights_option
@trust_options("model", "data")
def export(
    run: Path, solution: str, format_: str, out: Path | None, push: str | None, normalize: bool,
    tolerance: float, int8: bool, data_dir: Path | None, test_images: int | None, weights: Path | None,
    quiet: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Write a network of RUN as a file for other programs.

    The file is run on random inputs with batch sizes 1 and 3 (an ONNX file in onnxruntime), and its outputs
    are compared with PyTorch's; a file whose outputs differ is not kept. The batch size of the file is free.
    ONNX needs the packages onnx, onnxruntime and onnxscript. --weights is only for --solution original.

    ONNX and torch-export files contain the deployment form: batch norms folded, no-ops and empty branches
    removed. --int8 writes 8-bit integers instead, prints size and test error next to those of the float file
    and records both in the run; give --data if the images of the run have moved.

    \b
    Example:
      deeppruning export runs/r56 --solution knee --format onnx
      deeppruning export runs/r56 --solution light --normalize --out light.onnx
      deeppruning export runs/r56 --solution knee --format onnx --int8
      deeppruning export runs/r56 --solution knee --format hub --out knee --push me/resnet56-pruned
    """
    vouched = Vouched.take(settings)
    if push is not None:
        if format_ != "hub":
            raise InputError("--push uploads a folder of --format hub; add it, or leave out --push")
        check_push(push)
    written = export_network(
        run, solution, format_=format_, out=out, normalize=normalize, tolerance=tolerance, weights=weights,
        spec=vouched.model, trust_run=vouched.trust_run, int8=int8,
        material=int8_images(vouched, int8, data_dir, test_images),
    )  # fmt: skip
    address = None if push is None else push_folder(written.path, push)
    report = write_report(run) if int8 and not written.notes else None
    if as_json:
        click.echo(json.dumps({**written.as_record(), "pushed": address}))
        return
    click.echo(str(written.path if quiet else written))
    for name, value in {"pushed": address, "report": report}.items():
        if value is not None and not quiet:
            click.echo(f"{name}: {value}")
