"""Exported files hold the deployment form: fewer operations, nothing that is known beforehand."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.deploying.onnx_graph import has_onnx
from deeppruning.exporting import export_onnx, export_program
from deeppruning.models import create_model
from export_runs import TinyNet, names_a_place

needs_onnx = pytest.mark.skipif(not has_onnx(), reason="onnx and onnxruntime are not installed")
SHAPES = {"Shape", "ConstantOfShape", "Expand", "Cast", "Reshape", "Transpose", "Constant", "Identity"}


def without_branches(name: str) -> tuple[nn.Module, int]:
    """A network of the zoo without every second branch, and the convolutions that are left."""
    torch.manual_seed(1)
    model = create_model(name, image_size=8).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: nothing is the identity
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    graph = dp.ChannelGraph(model, torch.zeros(1, 3, 8, 8), depth=True)
    genome = np.random.default_rng(0).random(graph.num_genes) < 0.3
    for group in [group for group in graph.groups if group.removable][::2]:
        genome[list(group.genes)] = False
    thin = graph.prune(genome).eval()
    return thin, sum(isinstance(module, nn.Conv2d) for module in thin.modules())


def operations(path: Path) -> Counter[str]:
    import onnx

    return Counter(node.op_type for node in onnx.load(str(path)).graph.node)


@needs_onnx
@pytest.mark.parametrize(
    "name", ["resnet20", "densenet50", pytest.param("googlenet", marks=pytest.mark.slow)]
)
def test_a_network_that_lost_branches_leaves_no_trace_of_them(name: str, tmp_path: Path) -> None:
    thin, convolutions = without_branches(name)
    target = tmp_path / "thin.onnx"
    assert export_onnx(thin, torch.zeros(1, 3, 8, 8), target) <= 1e-5
    found = operations(target)
    assert found["Conv"] == convolutions
    assert not SHAPES & found.keys()
    # Traced as it is, such a network has hundreds: stand-ins, shapes, and constants for both.
    assert sum(found.values()) <= 46
    if name == "densenet50":
        assert found["Concat"] == 0  # nothing is left to be joined


@needs_onnx
@pytest.mark.parametrize(
    "name", ["resnet20", *(pytest.param(each, marks=pytest.mark.slow) for each in ("vgg16", "mobilenet_v2"))]
)
def test_no_batch_norm_is_left(name: str, tmp_path: Path) -> None:
    model = create_model(name, image_size=32 if name == "vgg16" else 8).eval()
    export_onnx(model, torch.zeros(1, 3, *[32 if name == "vgg16" else 8] * 2), tmp_path / "whole.onnx")
    assert operations(tmp_path / "whole.onnx")["BatchNormalization"] == 0


class Gated(nn.Module):
    """Constants to multiply with, and parts without channels to be joined."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.register_buffer("gate", torch.rand(4, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (self.first(x) * self.gate).relu()
        nothing = self.second(x)[:, :0].exp()
        x = torch.cat([nothing, self.second(x).relu(), nothing], dim=1)
        return torch.cat([x[:, :0], x], dim=1).tanh()


@needs_onnx
def test_constants_and_empty_parts_are_worked_out_beforehand(tmp_path: Path) -> None:
    target = tmp_path / "gated.onnx"
    assert export_onnx(Gated(), torch.zeros(1, 1, 6, 6), target) <= 1e-5
    assert operations(target) == Counter({"Conv": 2, "Relu": 2, "Tanh": 1})


def test_programs_hold_folded_layers(tmp_path: Path) -> None:
    assert export_program(TinyNet().eval(), torch.zeros(1, 1, 8, 8), tmp_path / "whole.pt2") <= 1e-4
    nodes = torch.export.load(tmp_path / "whole.pt2").graph.nodes
    assert [node for node in nodes if "batch_norm" in str(node.target)] == []
    assert not names_a_place(tmp_path / "whole.pt2", tmp_path)
