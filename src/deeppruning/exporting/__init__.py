"""Networks of a run for use elsewhere: as files of other formats, and measured side by side."""

from deeppruning.exporting.bench import bench_run
from deeppruning.exporting.calibration import MaterialSource
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.networks import RunNetwork, read_network
from deeppruning.exporting.normalized import Normalized
from deeppruning.exporting.onnx_file import export_onnx
from deeppruning.exporting.program import export_program
from deeppruning.exporting.run_file import ExportedFile, export_network
from deeppruning.exporting.weights_file import export_safetensors

__all__ = [
    "FORMATS",
    "Export",
    "ExportedFile",
    "Format",
    "MaterialSource",
    "Normalized",
    "RunNetwork",
    "bench_run",
    "export_network",
    "export_onnx",
    "export_program",
    "export_safetensors",
    "read_network",
]
