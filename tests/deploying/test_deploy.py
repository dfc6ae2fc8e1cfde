"""A deployed network gives what the original gives, without batch norms where they can go."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import deeppruning as dp
from deeppruning.deploying import Deployment
from deeppruning.deploying.steps import Fixed
from deeppruning.errors import GraphError, InputError
from deeppruning.graph.cut.duplicate import unrun
from deeppruning.graph.cut.hollow import Answer, Hollow
from deeppruning.graph.proof.difference import difference
from deeppruning.models import create_model
from graph_checks import assert_untouched, call, filled, snapshot
from graph_networks import NETWORKS


def used(model: nn.Module) -> nn.Module:
    """The network with statistics as after training: nothing is the identity."""
    torch.manual_seed(2)
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            if module.running_mean is not None:
                nn.init.uniform_(module.running_mean, -0.2, 0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
            if module.weight is not None:
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.2, 0.2)
    return model.eval()


def norms(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, _BatchNorm)]


def report(model: nn.Module) -> Deployment:
    found = model.deployment
    assert isinstance(found, Deployment)
    return found


def check_same(deployed: nn.Module, model: nn.Module, example: Any) -> None:
    with torch.no_grad():
        found, expected = (call(each, filled(example)) for each in (deployed, unrun(model, training=False)))
    assert difference(found, expected)[0] <= 1e-4


# A third of them by default; the rest differ in what a cut meets, and run with `make test-all`.
SMALL = [
    name if place % 3 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for place, name in enumerate(NETWORKS)
]


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_of_every_kind_give_what_they_gave(name: str) -> None:
    model, example = NETWORKS[name]()
    used(model).train()
    before = snapshot(model)
    deployed = dp.deploy(model, example)
    assert_untouched(model, before)
    assert not deployed.training
    check_same(deployed, model, example)
    assert set(norms(deployed)) == set(report(deployed).kept)


def thinned(name: str) -> tuple[nn.Module, nn.Module]:
    """A network of the zoo, and what is left of it without every second branch."""
    torch.manual_seed(1)
    model = used(create_model(name, image_size=8))
    graph = dp.ChannelGraph(model, torch.zeros(1, 3, 8, 8), depth=True)
    genome = np.random.default_rng(0).random(graph.num_genes) < 0.3
    for group in [group for group in graph.groups if group.removable][::2]:
        genome[list(group.genes)] = False
    return model, graph.prune(genome).eval()


@pytest.mark.parametrize(
    "name",
    [
        *("resnet20", "densenet50"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("vgg16", "mobilenet_v2", "googlenet", "efficientnet_b0", "squeezenet")
        ),
    ],
)
def test_the_zoo_whole_and_without_branches(name: str) -> None:
    for model in thinned(name):
        deployed = dp.deploy(model)
        check_same(deployed, model, torch.zeros(3, 3, 8, 8))
        # Norms that come before their convolution, as in densenets, have no layer to go into.
        assert bool(norms(deployed)) == (name == "densenet50")
        assert not any(isinstance(each, nn.Dropout) for each in deployed.modules())


def test_norms_before_their_convolution_stay_and_the_reason_is_told() -> None:
    deployed = dp.deploy(used(create_model("densenet50", image_size=8)))
    kept = report(deployed).kept
    assert kept["block1.layer.0.bn1"] == "others read conv1, too"
    assert all(name.endswith((".bn1", "bn")) or "." not in name for name in kept)
    assert "batch norm block1.layer.0.bn1 stays: others read conv1, too" in str(report(deployed))


def test_stand_ins_answer_without_a_look_and_dead_ones_make_nothing() -> None:
    _, thin = thinned("resnet20")
    assert sum(isinstance(each, Answer) for each in thin.modules()) == 5
    deployed = dp.deploy(thin)
    assert not any(isinstance(each, (Answer, Hollow)) for each in deployed.modules())
    fixed = [each.value for each in deployed.modules() if isinstance(each, Fixed)]
    assert len(fixed) == len(report(deployed).constant) == 20
    assert sum(value.numel() > 0 for value in fixed) == 5
    check_same(deployed, thin, torch.zeros(2, 3, 16, 16))  # of another size, too


LAYERS: dict[str, Callable[[int, int, bool], tuple[nn.Module, nn.Module, tuple[int, ...]]]] = {
    "conv1d": lambda w, g, b: (nn.Conv1d(4, w * g, 3, groups=g, bias=b), nn.BatchNorm1d(w * g), (4, 9)),
    "conv2d": lambda w, g, b: (nn.Conv2d(4, w * g, 3, groups=g, bias=b), nn.BatchNorm2d(w * g), (4, 6, 6)),
    "conv3d": lambda w, g, b: (nn.Conv3d(4, w * g, 2, groups=g, bias=b), nn.BatchNorm3d(w * g), (4, 3, 3, 3)),
    "transposed1d": lambda w, g, b: (
        nn.ConvTranspose1d(4, w * g, 3, groups=g, bias=b), nn.BatchNorm1d(w * g), (4, 5),
    ),
    "transposed2d": lambda w, g, b: (
        nn.ConvTranspose2d(4, w * g, 3, stride=2, groups=g, bias=b), nn.BatchNorm2d(w * g), (4, 5, 4),
    ),
    "linear": lambda w, g, b: (nn.Linear(4, w * g, bias=b), nn.BatchNorm1d(w * g), (4,)),
}  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(sorted(LAYERS)),
    width=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    affine=st.booleans(),
)
def test_every_layer_takes_its_norm_in(kind: str, width: int, groups: int, bias: bool, affine: bool) -> None:
    layer, norm, shape = LAYERS[kind](width, groups, bias)
    if not affine:
        norm = type(norm)(norm.num_features, affine=False)
    model = used(nn.Sequential(layer, nn.Dropout(0.5), norm, nn.ReLU())).double()
    example = torch.randn(3, *shape, dtype=torch.float64)
    deployed = dp.deploy(model, example)
    assert [type(each) for each in deployed] == [type(layer), nn.ReLU]
    assert (deployed(example) - model(example)).abs().max() <= 1e-12


class Shared(nn.Module):
    """Each of these norms is one that must stay."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Conv2d(3, 3, 1) for _ in range(4))
        self.read_twice, self.runs_twice, self.first = (nn.BatchNorm2d(3) for _ in range(3))
        self.by_batch = nn.BatchNorm2d(3, track_running_stats=False)
        self.behind_relu = nn.BatchNorm2d(3)
        self.unused = nn.BatchNorm2d(3)
        self.free = nn.Linear(4, 4)
        self.other_axis = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        a = self.a(x)
        x = a + self.read_twice(a)
        x = self.runs_twice(self.runs_twice(self.b(x)))
        x = self.by_batch(self.c(x))
        x = self.behind_relu(self.d(x).relu_())
        return self.other_axis(self.free(x.flatten(2)))


def test_what_must_stay_stays_with_its_reason() -> None:
    model = used(Shared())
    example = torch.zeros(2, 3, 2, 2)
    deployed = dp.deploy(model, example)
    check_same(deployed, model, example)
    alone = "it does not read the output of one convolution or linear layer alone"
    assert report(deployed).kept == {
        "read_twice": "others read a, too",
        "runs_twice": "it runs 2 times",
        "first": alone,
        "by_batch": "it uses the statistics of each batch",
        "behind_relu": alone,
        "unused": "it does not run",
        "other_axis": "it normalises another dimension than the channels of free",
    }


class Peeking(nn.Module):
    """Looks at its norm's own numbers, which a folded one has not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)
        self.norm1, self.norm2 = nn.BatchNorm2d(2), nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.first(x)).relu()
        return self.norm2(self.second(x)) * self.norm2.eps


def test_a_fold_that_does_not_hold_is_undone_alone() -> None:
    model = used(Peeking())
    deployed = dp.deploy(model)
    check_same(deployed, model, torch.zeros(2, 1, 8, 8))
    assert report(deployed).folded == {"norm1": "first"}
    assert report(deployed).kept == {"norm2": "outputs were not the same without it"}


class NormAct(nn.BatchNorm2d):
    """A norm with its activation inside, as timm has them."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.drop, self.act = nn.Identity(), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.drop(super().forward(x)))


def test_of_a_norm_with_an_activation_the_activation_stays() -> None:
    model = used(nn.Sequential(nn.Conv2d(1, 4, 3), NormAct(4), nn.Conv2d(4, 2, 3)))
    deployed = dp.deploy(model)
    assert norms(deployed) == []
    check_same(deployed, model, torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize(("kind", "within"), [(torch.float16, 1e-2), (torch.bfloat16, 5e-2)])
def test_other_precisions_are_folded_in_double_and_cast_back(kind: torch.dtype, within: float) -> None:
    model = used(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())).to(kind)
    deployed = dp.deploy(model)
    assert {each.dtype for each in deployed.parameters()} == {kind}
    exact = dp.deploy(copy.deepcopy(model).double())
    assert torch.equal(deployed[0].weight, exact[0].weight.to(kind))
    images = torch.randn(2, 1, 8, 8).to(kind)
    with torch.no_grad():
        assert difference(deployed(images), model(images))[0] <= within


def test_bad_input_is_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r"torch\.nn\.Module, got str"):
        dp.deploy("resnet20")
    with pytest.raises(InputError, match=r"dp\.deploy\(model, example_input\)"):
        dp.deploy(nn.Sequential(nn.Conv2d(3, 2, 1), nn.Bilinear(2, 2, 2)))
    with pytest.raises(GraphError, match="running the network once"):
        dp.deploy(nn.Conv2d(3, 2, 1), torch.zeros(1, 5, 4, 4))
    with pytest.raises(GraphError, match="TorchScript"):
        dp.deploy(torch.jit.script(nn.Conv2d(3, 2, 1)))
