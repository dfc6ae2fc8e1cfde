"""`deeppruning export`: write a network of a run in a format that other programs read, and check it."""

from pathlib import Path

import click

from deeppruning.cli.options.int8 import int8_options, material_source
from deeppruning.cli.options.model import weights_option
from deeppruning.cli.options.search import run_argument
from deeppruning.cli.options.trust import trust_options
from deeppruning.exporting import FORMATS, export_network
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.reporting import write_report
from deeppruning.roles import KNEE

_ABOUT = [format_.about for format_ in FORMATS.values()]


@click.command()
@run_argument
@click.option(
    "--solution",
    default=KNEE,
    show_default=True,
    metavar="NAME",
    help="knee, heavy, light, target, original, or candidate-ID once it is fine-tuned.",
)
@click.option(
    "--format",
    "format_",
    default="onnx",
    show_default=True,
    metavar="|".join(FORMATS),
    help=f"{', '.join(_ABOUT[:-1])}, or {_ABOUT[-1]}.",
)
@click.option("--out", type=click.Path(path_type=Path), help="File to write. [RUN/export/NAME.ENDING]")
@click.option(
    "--normalize",
    is_flag=True,
    help="Fold the normalisation in: the file then takes pixels of 0..255 as floats.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=TOLERANCE,
    show_default=True,
    help="Largest difference from PyTorch's outputs that is accepted.",
)
@int8_options("Quantise an ONNX file: static, per channel, calibrated on the sample of the search.")
@weights_option
@trust_options("model", "data")
def export(
    run: Path, solution: str, format_: str, out: Path | None, normalize: bool, tolerance: float,
    int8: bool, data_dir: Path | None, test_images: int | None,
    weights: Path | None, trust_run: bool, named_model: str | None, named_data: str | None,
) -> None:  # fmt: skip
    """Write a network of RUN as a file for other programs.

    The file is run (ONNX: in onnxruntime) on random inputs in batches of 1 and 3 and its outputs are
    compared with PyTorch's; a file that differs is not kept. The batch size is free. --weights is for
    --solution original only, in place of the run's own copy. ONNX needs the packages onnx,
    onnxruntime and onnxscript.

    ONNX and torch-export files hold the deployment form: batch norms folded, no-ops and lost branches gone.
    --int8 writes whole numbers of eight bits instead, tells size and test error beside the float file's,
    and keeps both in the run; --data names the images where the run's own cannot be found.

    \b
    Example:
      deeppruning export runs/r56 --solution knee --format onnx
      deeppruning export runs/r56 --solution light --normalize --out light.onnx
      deeppruning export runs/r56 --solution knee --format onnx --int8
    """
    written = export_network(
        run, solution, format_=format_, out=out, normalize=normalize, tolerance=tolerance, weights=weights,
        spec=named_model, trust_run=trust_run, int8=int8,
        material=material_source(int8, named_data, data_dir, test_images, trust_run),
    )  # fmt: skip
    click.echo(str(written))
    if int8 and not written.notes:
        click.echo(f"report: {write_report(run)}")
