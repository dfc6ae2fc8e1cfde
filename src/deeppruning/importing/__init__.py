"""ONNX files as ordinary networks: read, rebuilt from torch's own layers, and compared with onnxruntime.

Reading order: `file` reads the file, `refusing` says what is not supported, `trying` runs it in onnxruntime,
`building` makes the network node by node: `layers` turns nodes into modules, `operations`, `moving` and
`host` hold the operations without weights, `sizes` makes written sizes follow the tensors. `onnx` compares,
`writing` writes a network back, by `writer` and the files beside it.
"""

from deeppruning.importing.onnx import from_onnx

__all__ = ["from_onnx"]
