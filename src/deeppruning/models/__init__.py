"""The model zoo: networks by name, and networks built by a user's own code.

>>> create_model("resnet20", num_classes=10, shortcut="pad").linear
Linear(in_features=64, out_features=10, bias=True)
"""

from deeppruning.models import densenet, googlenet, mobilenet, resnet, squeezenet, vgg  # noqa: F401
from deeppruning.models.registry import (
    ModelSummary,
    create_model,
    describe_model,
    list_models,
    register_model,
    resolve_model,
)

__all__ = [
    "ModelSummary",
    "create_model",
    "describe_model",
    "list_models",
    "register_model",
    "resolve_model",
]
