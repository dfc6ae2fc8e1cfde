"""A network of a run written as a file that other programs read, checked before it is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor, nn

from deeppruning.errors import InputError, RunError
from deeppruning.exporting.calibration import MaterialSource
from deeppruning.exporting.formats import FORMATS, Export
from deeppruning.exporting.given import Given, as_run_network, example_of, named
from deeppruning.exporting.int8 import SUFFIX, export_int8
from deeppruning.exporting.networks import RunNetwork, read_network
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.jobs.solution import Solution
from deeppruning.roles import KNEE
from deeppruning.runs.facts import INT8, Int8Figures
from deeppruning.runs.folder import CONFIG, HISTORY, RunFolder
from deeppruning.system.files import folder_within

FOLDER = "export"  # of a run, where files go unless told otherwise


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written."""

    path: Path
    format: str  # with what matters of it: "ONNX, opset 18"
    difference: float  # the largest one of its outputs from PyTorch's
    int8: Int8Figures | None = None  # beside the float file, where it is quantised
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        size = self.path.stat().st_size
        lines = [
            f"{self.path}  ({self.format}, {size:,} bytes)",
            *(() if self.int8 is None else told_int8(self.int8)),
            f"largest difference from PyTorch{'' if self.int8 is None else ' (by rounding to eight bits)'}: "
            f"{self.difference:.1e}",
            *self.notes,
        ]
        return "\n".join(lines)


def told_int8(figures: Int8Figures) -> list[str]:
    """What quantisation saved and what it cost, as lines for people."""
    small, full = figures["file_bytes"], figures["float_file_bytes"]
    error, before = figures.get("test_error"), figures.get("float_test_error")
    lines = [
        f"{100 * small / full:.0f} % of the float file's {full:,} bytes, "
        f"calibrated on {figures['calibration_inputs']} inputs"
    ]
    if error is not None and before is not None:
        lines.append(
            f"test error: {100 * before:.2f} % float, {100 * error:.2f} % int8 "
            f"({figures.get('test_images')} images)"
        )
    else:
        lines.append("test error not measured: no test images were given")
    return lines


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
    int8: bool = False,
    source: MaterialSource | None = None,
) -> ExportedFile:
    """Write the network of this name; by default to RUN/export. The rest as in `read_network`.

    With `int8` it is quantised, by images of the `source`: those of the run unless others are given.
    """
    wanted = _Wanted(format_, normalize, tolerance, int8, source or MaterialSource(trust_run=trust_run))
    wanted.check(given=source is not None)
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
    written = wanted.write(network, run / FOLDER, out, run)
    if written.int8 is None:
        return written
    reason = keep_int8(run, {solution: written.int8})
    return replace(written, notes=(f"not kept in the run: {reason}",)) if reason else written


def export_given(
    given: Given,
    solution: str = KNEE,
    *,
    format_: str,
    out: str | Path | None,
    normalize: bool,
    tolerance: float,
    example_input: Tensor | None,
    int8: bool,
    source: MaterialSource | None,
) -> ExportedFile:
    """The same for a network that is at hand, or the one of this name of a result or a front.

    One of a run is written to RUN/export unless `out` says otherwise.
    """
    wanted = _Wanted(format_, normalize, tolerance, int8, source or MaterialSource())
    wanted.check(given=source is not None)
    chosen = named(given, solution)
    saved = chosen.path if isinstance(chosen, Solution) else None
    if out is None and saved is None:
        raise InputError('say where the file is to be written: out="thin.onnx"')
    run = Path() if saved is None else saved.parent
    return wanted.write(as_run_network(chosen, example_of(given, example_input)), run / FOLDER, out, run)


@dataclass(frozen=True)
class _Wanted:
    """How a network is to be written."""

    format: str
    normalize: bool
    tolerance: float
    int8: bool
    source: MaterialSource

    def check(self, *, given: bool) -> None:
        """Refuse what does not go together, before any work."""
        chosen = FORMATS.find(self.format)
        if self.int8 and chosen.name != "onnx":
            raise InputError(
                f"int8 files are ONNX files, got the format {chosen.name}; leave out one of both"
            )
        if not self.int8 and given:
            raise InputError("calibration and test images are for int8 only; ask for it, or leave them out")
        chosen.check(normalize=self.normalize)

    def write(self, network: RunNetwork, folder: Path, out: str | Path | None, run: Path) -> ExportedFile:
        """Write it, by default into this folder under its name."""
        chosen = FORMATS.find(self.format)
        material = self.source.open(run) if self.int8 else None
        ending = SUFFIX if self.int8 else chosen.suffix
        target = _target(run, folder / f"{network.name}{ending}" if out is None else Path(out))
        wanted = Export(
            model=network.model,
            example=network.example,
            normalization=network.normalization() if self.normalize else None,
            tolerance=self.tolerance,
            metadata=network.metadata,
        )
        told = chosen.detail or chosen.name
        if material is None:
            return ExportedFile(target, told, chosen.write(wanted, target))
        recorded = "normalization" in network.metadata
        fitting = material.normalized(network.normalization() if recorded else None)
        difference, figures = export_int8(wanted, target, fitting)
        return ExportedFile(target, f"{told}, int8", difference, figures)


def keep_int8(run_dir: str | Path, figures: Mapping[str, Int8Figures]) -> str:
    """Put the figures into the run, beside earlier ones; gives the reason if they cannot be."""
    try:
        with RunFolder.open(run_dir) as opened:
            known = opened.history.get_fact(INT8) or {}
            opened.history.set_fact(INT8, {**known, **figures})
    except RunError as error:
        return str(error)
    return ""


def _target(run: Path, path: Path) -> Path:
    """The file to write, its folder made; what the run itself keeps is never overwritten."""
    resolved = path.resolve()
    inside = resolved.parent in (run.resolve(), (run / "finetune").resolve())
    if inside and (resolved.suffix == ".safetensors" or resolved.name in (CONFIG, HISTORY)):
        raise InputError(f"{path} belongs to the run itself; choose another file to write")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file to write in it")
    try:
        if run.absolute() in path.absolute().parents:
            folder_within(run.absolute(), path.absolute().parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent} cannot be made ({error.strerror}); choose another file to write"
        ) from error
    return path
