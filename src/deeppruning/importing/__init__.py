"""ONNX files as ordinary networks: read, rebuilt from torch's own layers, and compared with onnxruntime.

Reading order: `file` reads the file, `layers` turns nodes with weights into modules, `operations` holds the
others, `sizes` makes written sizes follow the tensors, `network` builds the network, `onnx` checks it.
"""

from deeppruning.importing.onnx import from_onnx

__all__ = ["from_onnx"]
