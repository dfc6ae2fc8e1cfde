"""A network written as a file that other programs read, checked before it is kept."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deeppruning.amounts import percent
from deeppruning.errors import InputError
from deeppruning.exporting.as_read import opset_of
from deeppruning.exporting.formats import FORMATS, Export
from deeppruning.exporting.int8 import SUFFIX, MaterialSource, export_int8, keep_int8
from deeppruning.exporting.networks import AtHand, RunReader, network_named, run_of
from deeppruning.exporting.parity import TOLERANCE
from deeppruning.roles import KNEE
from deeppruning.runs.facts import Int8Figures
from deeppruning.runs.folder import CONFIG, FINETUNE, HISTORY
from deeppruning.system.files import folder_within

FOLDER = "export"  # in a run, where files go by default


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written."""

    path: Path
    format: str  # with details: "ONNX, opset 18"
    difference: float  # the largest difference of its outputs from PyTorch's
    int8: Int8Figures | None = None  # size and error compared with the float file, if it is quantised
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Its size; that of a folder is the size of its files."""
        files = self.path.iterdir() if self.path.is_dir() else [self.path]
        return sum(file.stat().st_size for file in files)

    def as_record(self) -> dict[str, Any]:
        """The same for programs: values of JSON."""
        names = ("format", "bytes", "difference", "int8")
        record = {name: getattr(self, name) for name in names}
        return {"path": str(self.path), **record, "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [
            f"{self.path}  ({self.format}, {self.bytes:,} bytes)",
            *(() if self.int8 is None else _int8_lines(self.int8)),
            f"largest difference from PyTorch{'' if self.int8 is None else ' (by rounding to eight bits)'}: "
            f"{self.difference:.1e}",
            *self.notes,
        ]
        return "\n".join(lines)


def _int8_lines(figures: Int8Figures) -> list[str]:
    """What quantisation saved and what it cost."""
    small, full = figures["file_bytes"], figures["float_file_bytes"]
    error, before = figures.get("test_error"), figures.get("float_test_error")
    lines = [
        f"{percent(small / full, 0)} of the float file's {full:,} bytes, "
        f"calibrated on {figures['calibration_inputs']} inputs"
    ]
    if error is not None and before is not None:
        lines.append(
            f"test error: {percent(before)} float, {percent(error)} int8 "
            f"({figures.get('test_images')} images)"
        )
    else:
        lines.append("test error not measured: no test images were given")
    return lines


def export_network(
    source: str | Path | AtHand,
    solution: str = KNEE,
    *,
    format_: str = "onnx",
    out: str | Path | None = None,
    normalize: bool = False,
    tolerance: float = TOLERANCE,
    int8: bool = False,
    material: MaterialSource | None = None,
    **reading: Any,
) -> ExportedFile:
    """Write a network of a run folder, a result or a front by its name, or a network passed from Python.

    A network of a run goes to RUN/export by default. With `int8` it is quantised with the images of
    `material`, by default those of the run. Further parameters are those of `RunReader`.
    """
    format_entry = FORMATS.find(format_)
    if int8 and format_entry.name != "onnx":
        raise InputError(f"int8 files are ONNX files, got the format {format_}; leave out one of the two")
    if not int8 and material is not None:
        raise InputError("calibration and test images are for int8 only; ask for it, or leave them out")
    format_entry.check(normalize=normalize)
    run = run_of(source)
    if out is None and run is None:
        raise InputError('say where the file is to be written: out="thin.onnx"')
    reader = RunReader(**reading)
    network = network_named(source, solution, reader)
    images = (material or MaterialSource(trust_run=reader.trust_run)).open(run) if int8 else None
    suffix = SUFFIX if int8 else format_entry.suffix
    named = Path(out) if out is not None else Path(run or "") / FOLDER / f"{network.name}{suffix}"
    path = _writable_export(run, named, folder=format_entry.folder)
    export = Export(
        model=network.model,
        example=network.example,
        normalization=network.normalization() if normalize else None,
        tolerance=tolerance,
        metadata=network.metadata,
        run=run,
        base=network.base,
    )
    detail = format_entry.detail or format_entry.name
    if images is None:
        difference = format_entry.write(export, path)
        if format_entry.name == "onnx":
            detail = f"ONNX, opset {opset_of(path)}"
        return ExportedFile(path, detail, difference)
    images = images.normalized(network.recorded_normalization())
    difference, figures = export_int8(export, path, images)
    written = ExportedFile(path, f"{detail}, int8", difference, figures)
    reason = "" if run is None else keep_int8(run, {network.name: figures})
    return replace(written, notes=(f"not kept in the run: {reason}",)) if reason else written


def _writable_export(run: Path | None, path: Path, *, folder: bool = False) -> Path:
    """The file or folder to write, what it lies in made; files of the run itself are never overwritten."""
    resolved = path.resolve()
    inside = run is not None and resolved.parent in (run.resolve(), (run / FINETUNE).resolve())
    if inside and (resolved.suffix == ".safetensors" or resolved.name in (CONFIG, HISTORY)):
        raise InputError(f"{path} belongs to the run itself; choose another file to write")
    if folder and path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; name a folder to write")
    if folder and run is not None and resolved == run.resolve():
        raise InputError(f"{path} is the folder of the run itself; choose another folder to write")
    if path.is_dir() and not folder:
        raise InputError(f"{path} is a folder; name the file to write in it")
    try:
        if run is not None and run.absolute() in path.absolute().parents:
            folder_within(run.absolute(), path.absolute().parent)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path.parent} cannot be made ({error.strerror}); choose another file to write"
        ) from error
    return path
