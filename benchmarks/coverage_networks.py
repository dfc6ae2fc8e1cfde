"""The public networks that the coverage table is about: their names, input sizes and how to make them."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

CLASSES = 1000
NEEDED = {"torchvision": "torchvision==0.28.0", "timm": "timm", "torch_pruning": "torch-pruning==1.6.1"}
HOW_TO_INSTALL = """This table needs packages that DeepPruningES itself does not: {missing}.
Install them beside the torch that is already there, in an environment of their own:
  pip install --no-deps {specs}
  pip install pyyaml huggingface_hub tqdm"""


@dataclass(frozen=True)
class Network:
    """One row of the table."""

    library: str
    name: str
    size: int = 64  # small images keep the table quick; larger only where the network demands it
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name used on the command line and in the table."""
        return f"{self.library}/{self.name}"

    def make(self) -> nn.Module:
        """The network with random weights in evaluation mode."""
        if self.library == "zoo":
            from deeppruning.models import create_model

            model: nn.Module = create_model(self.name.split("-")[0], num_classes=CLASSES, **self.options)
        elif self.library == "torchvision":
            from torchvision import models

            model = models.get_model(self.name, weights=None, **self.options)
        else:
            import timm

            model = timm.create_model(self.name, pretrained=False, **self.options)
        return _lively(model).eval()

    def example(self, batch: int = 1) -> torch.Tensor:
        """Random images."""
        return torch.randn(batch, 3, self.size, self.size)


ZOO = [
    Network("zoo", "resnet56-pad", 32, {"shortcut": "pad"}),
    Network("zoo", "resnet56-conv", 32, {"shortcut": "conv"}),
    Network("zoo", "densenet100", 32),
]
TORCHVISION = [
    Network("torchvision", "alexnet"),
    Network("torchvision", "vgg11_bn"),
    Network("torchvision", "vgg16"),
    Network("torchvision", "resnet18"),
    Network("torchvision", "resnet50"),
    Network("torchvision", "resnext50_32x4d"),
    Network("torchvision", "wide_resnet50_2"),
    Network("torchvision", "densenet121"),
    Network("torchvision", "googlenet", options={"init_weights": False}),
    Network("torchvision", "inception_v3", 299, {"init_weights": False}),
    Network("torchvision", "squeezenet1_1"),
    Network("torchvision", "mnasnet1_0"),
    Network("torchvision", "shufflenet_v2_x1_0"),
    Network("torchvision", "mobilenet_v2"),
    Network("torchvision", "mobilenet_v3_small"),
    Network("torchvision", "mobilenet_v3_large"),
    Network("torchvision", "efficientnet_b0"),
    Network("torchvision", "efficientnet_v2_s"),
    Network("torchvision", "regnet_x_400mf"),
    Network("torchvision", "regnet_y_400mf"),
    Network("torchvision", "convnext_tiny"),
    Network("torchvision", "swin_t"),
    Network("torchvision", "vit_b_16", options={"image_size": 64}),
    Network("torchvision", "maxvit_t", 224),
]
TIMM = [
    Network("timm", "resnet26d"),
    Network("timm", "resnet50_gn"),
    Network("timm", "resnetv2_50"),
    Network("timm", "seresnet50"),
    Network("timm", "skresnet18"),
    Network("timm", "resnest26d"),
    Network("timm", "ecaresnet26t"),
    Network("timm", "res2net50_26w_4s"),
    Network("timm", "cspresnet50"),
    Network("timm", "darknet53"),
    Network("timm", "dpn68"),
    Network("timm", "densenet121"),
    Network("timm", "dla34"),
    Network("timm", "hrnet_w18_small"),
    Network("timm", "ese_vovnet19b_dw"),
    Network("timm", "selecsls42b"),
    Network("timm", "hgnetv2_b0"),
    Network("timm", "inception_v4", 96),
    Network("timm", "xception41"),
    Network("timm", "nf_resnet50"),
    Network("timm", "nfnet_f0"),
    Network("timm", "repvgg_a2"),
    Network("timm", "mobileone_s0"),
    Network("timm", "regnety_002"),
    Network("timm", "tf_efficientnet_b0"),
    Network("timm", "mixnet_s"),
    Network("timm", "lcnet_050"),
    Network("timm", "ghostnet_100"),
    Network("timm", "rexnet_100"),
    Network("timm", "mobilenetv4_conv_small"),
    Network("timm", "starnet_s1"),
    Network("timm", "convnext_atto"),
    Network("timm", "fastvit_t8"),
    Network("timm", "poolformer_s12"),
    Network("timm", "mobilevit_s"),
    Network("timm", "edgenext_xx_small"),
    Network("timm", "efficientformer_l1", 224),
]
NETWORKS = {network.key: network for network in ZOO + TORCHVISION + TIMM}

_operators: list[torch.library.Library] = []  # a declared operator lives as long as its library object


def missing_packages() -> str | None:
    """What to install and how, or None when all is there."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return HOW_TO_INSTALL.format(missing=", ".join(missing), specs=" ".join(NEEDED[name] for name in missing))


def import_libraries() -> None:
    """Import all that the trials need, torchvision even beside a torch that it was not compiled for."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):  # declared, never called: no network here uses them
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _operators.append(library)
    torch.set_num_threads(1)  # threads would not survive the fork
    for name in NEEDED:
        importlib.import_module(name)


def _lively(model: nn.Module) -> nn.Module:
    """Replace constants of the initialisation by random values, as training would.

    A norm that shifts by 0, a layer scale of 1e-6 or a branch that starts at 0 would hide a wrong cut.
    """
    generator = torch.Generator().manual_seed(0)

    def around(center: float, tensor: torch.Tensor) -> torch.Tensor:
        return center + (torch.rand(tensor.shape, generator=generator) - 0.5)

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() and bool((parameter == parameter.flatten()[0]).all()):
                zero = float(parameter.flatten()[0]) == 0.0
                parameter.copy_(around(0.0, parameter) / 5 if zero else around(1.0, parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(around(0.0, buffer) / 5)
            elif name.endswith("running_var"):
                buffer.copy_(around(1.0, buffer))
    return model
