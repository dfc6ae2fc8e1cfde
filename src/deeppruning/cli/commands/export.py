"""`deeppruning export`: write a network of a run in a format that other programs read, and check it."""

from pathlib import Path

import click

from deeppruning.cli.options.model import weights_option
from deeppruning.cli.options.search import run_argument
from deeppruning.cli.options.trust import trust_options
from deeppruning.errors import InputError, unknown
from deeppruning.exporting import export_onnx, export_program, export_safetensors, read_network
from deeppruning.exporting.onnx_file import OPSET
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.roles import KNEE
from deeppruning.runs.folder import CONFIG, HISTORY

ENDINGS = {"onnx": ".onnx", "torch-export": ".pt2", "safetensors": ".safetensors"}


@click.command()
@run_argument
@click.option(
    "--solution",
    default=KNEE,
    show_default=True,
    metavar="NAME",
    help="knee, heavy, light, original, or candidate-ID once it is fine-tuned.",
)
@click.option(
    "--format",
    "format_",
    default="onnx",
    show_default=True,
    metavar="|".join(ENDINGS),
    help="ONNX file, program of torch.export (.pt2), or plain weights.",
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
@weights_option
@trust_options("model")
def export(
    run: Path, solution: str, format_: str, out: Path | None, normalize: bool, tolerance: float,
    weights: Path | None, trust_run: bool, named_model: str | None,
) -> None:  # fmt: skip
    """Write a network of RUN as a file for other programs.

    The file is run (ONNX: in onnxruntime) on random inputs in batches of 1 and 3 and its outputs are
    compared with PyTorch's; a file that differs is not kept. The batch size is free. --weights is for
    --solution original only, in place of the run's own copy. ONNX needs: pip install deeppruning-es[onnx]

    \b
    Example:
      deeppruning export runs/r56 --solution knee --format onnx
      deeppruning export runs/r56 --solution light --normalize --out light.onnx
    """
    if format_ not in ENDINGS:
        raise unknown("format", format_, ENDINGS)
    if normalize and format_ == "safetensors":
        raise InputError(
            "safetensors holds weights only, so nothing can be folded in; "
            "leave out --normalize or use --format onnx"
        )
    network = read_network(run, solution, weights=weights, spec=named_model, trust_run=trust_run)
    target = _target(run, out or run / "export" / f"{solution}{ENDINGS[format_]}")
    normalization = network.normalization() if normalize else None
    if format_ == "safetensors":
        difference = export_safetensors(network.model, target, metadata=network.metadata)
    elif format_ == "onnx":
        difference = export_onnx(
            network.model, network.example(), target,
            normalization=normalization, tolerance=tolerance, metadata=network.metadata,
        )  # fmt: skip
    else:
        difference = export_program(
            network.model, network.example(), target, normalization=normalization, tolerance=tolerance
        )
    about = f"ONNX, opset {OPSET}" if format_ == "onnx" else format_
    click.echo(f"{target}  ({about}, {target.stat().st_size:,} bytes)")
    click.echo(f"largest difference from PyTorch: {difference:.1e}")


def _target(run: Path, path: Path) -> Path:
    """The file to write, its folder made; what the run itself keeps is never overwritten."""
    resolved = path.resolve()
    inside = resolved.parent in (run.resolve(), (run / "finetune").resolve())
    if inside and (resolved.suffix == ".safetensors" or resolved.name in (CONFIG, HISTORY)):
        raise InputError(f"{path} belongs to the run itself; choose another file for --out")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file to write in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent} cannot be made ({error.strerror}); choose another --out") from error
    return path
