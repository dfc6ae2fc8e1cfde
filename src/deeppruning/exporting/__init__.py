"""Networks for use elsewhere: written as files of other formats, and measured side by side."""

from deeppruning.exporting.bench import bench_networks
from deeppruning.exporting.bench_table import BenchFigures
from deeppruning.exporting.files import ExportedFile, export_network
from deeppruning.exporting.formats import FORMATS, Export, Format, Normalized
from deeppruning.exporting.int8 import MaterialSource
from deeppruning.exporting.networks import AtHand, RunNetwork, read_network
from deeppruning.exporting.onnx_file import export_onnx
from deeppruning.exporting.torch_files import export_program

__all__ = [
    "FORMATS",
    "AtHand",
    "BenchFigures",
    "Export",
    "ExportedFile",
    "Format",
    "MaterialSource",
    "Normalized",
    "RunNetwork",
    "bench_networks",
    "export_network",
    "export_onnx",
    "export_program",
    "read_network",
]
