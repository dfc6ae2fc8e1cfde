"""A network of a run written as a file that other programs read, checked before it is kept."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from deeppruning.errors import InputError
from deeppruning.exporting.formats import FORMATS, Export
from deeppruning.exporting.networks import read_network
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.roles import KNEE
from deeppruning.runs.folder import CONFIG, HISTORY


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written."""

    path: Path
    format: str  # with what matters of it: "ONNX, opset 18"
    difference: float  # the largest one of its outputs from PyTorch's

    def __str__(self) -> str:
        size = self.path.stat().st_size
        return (
            f"{self.path}  ({self.format}, {size:,} bytes)\n"
            f"largest difference from PyTorch: {self.difference:.1e}"
        )


def export_network(
    run_dir: str | Path,
    solution: str = KNEE,
    *,
    format_: str = "onnx",
    out: str | Path | None = None,
    normalize: bool = False,
    tolerance: float = TOLERANCE,
    model: nn.Module | None = None,
    example_input: Tensor | None = None,
    weights: Path | None = None,
    spec: str | None = None,
    trust_run: bool = False,
) -> ExportedFile:
    """Write the network of this name; by default to RUN/export. The rest as in `read_network`."""
    chosen = FORMATS.find(format_)
    chosen.check(normalize=normalize)
    network = read_network(
        run_dir,
        solution,
        model=model,
        example_input=example_input,
        weights=weights,
        spec=spec,
        trust_run=trust_run,
    )
    run = Path(run_dir)
    target = _target(run, run / "export" / f"{solution}{chosen.suffix}" if out is None else Path(out))
    wanted = Export(
        model=network.model,
        example=network.example,
        normalization=network.normalization() if normalize else None,
        tolerance=tolerance,
        metadata=network.metadata,
    )
    return ExportedFile(target, chosen.detail or chosen.name, chosen.write(wanted, target))


def _target(run: Path, path: Path) -> Path:
    """The file to write, its folder made; what the run itself keeps is never overwritten."""
    resolved = path.resolve()
    inside = resolved.parent in (run.resolve(), (run / "finetune").resolve())
    if inside and (resolved.suffix == ".safetensors" or resolved.name in (CONFIG, HISTORY)):
        raise InputError(f"{path} belongs to the run itself; choose another file to write")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file to write in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent} cannot be made ({error.strerror}); choose another file to write"
        ) from error
    return path
