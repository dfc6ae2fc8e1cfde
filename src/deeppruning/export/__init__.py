"""Networks of a run for use elsewhere: as files of other formats, and measured side by side."""

from deeppruning.export.bench import bench_run
from deeppruning.export.networks import Network, read_network
from deeppruning.export.normalized import Normalized
from deeppruning.export.onnx_file import export_onnx
from deeppruning.export.program import export_program
from deeppruning.export.weights_file import export_safetensors

__all__ = [
    "Network",
    "Normalized",
    "bench_run",
    "export_onnx",
    "export_program",
    "export_safetensors",
    "read_network",
]
