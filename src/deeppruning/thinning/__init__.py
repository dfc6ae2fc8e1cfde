"""ONNX in, ONNX out: a file is thinned by inputs alone and written back as a file of the same interface.

Reading order: `asked` (checked before any work), `inputs` and `pictures` (what is run through the network),
`task` (how candidates are judged), `measuring` (two files side by side in onnxruntime), `outcome` (what is
given back), `thin` (the call).
"""

from deeppruning.thinning.inputs import PictureOptions
from deeppruning.thinning.outcome import Thinned
from deeppruning.thinning.thin import thin

__all__ = ["PictureOptions", "Thinned", "thin"]
