"""What counts as proof of a cut: numbers that are there, comparable and equal to rounding."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph import ChannelGraph
from deeppruning.graph.proof.difference import difference
from deeppruning.graph.proof.probe import close
from deeppruning.graph.proof.verify import Proof
from graph_networks import NETWORKS, Net, block, head

IMAGES = torch.zeros(2, 3, 8, 8)
HALF = np.arange(8) % 2 == 0


def network(run) -> Net:
    """Eight filters and a head; what is made of them is up to the function."""
    torch.manual_seed(0)
    return Net(run, stem=block(3, 8), head=head(8))


def logits(net: Net, x: Tensor) -> Tensor:
    return net.head(net.stem(x))


def unmasked(graph: ChannelGraph) -> ChannelGraph:
    """The graph with a wrong reference: nothing is masked, so that every real cut is wrong."""
    graph._built.genes[:] = -1
    return graph


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda net, x: logits(net, x) / 0 * 0, "output 0 is not a number"),
        (lambda net, x: (logits(net, x), logits(net, x).log() * float("nan")), "output 1 is not a number"),
        (lambda net, x: logits(net, x).abs() / 0, "output 0 is infinite"),
        (
            lambda net, x: (logits(net, x), torch.zeros(len(net.stem[0].weight))),
            r"output 1 is of (4,) and torch.float32, where (8,) and torch.float32 are due",
        ),
        (
            lambda net, x: [logits(net, x)] * len(net.stem[0].weight),
            "4 outputs where 8 are due",
        ),
        (lambda net, x: float(logits(net, x).sum()), "the network's output holds no tensor"),
    ],
    ids=["nan", "nan behind", "infinite", "shape", "count", "no tensor"],
)
def test_outputs_that_cannot_be_compared_prove_nothing(run, reason):
    graph = ChannelGraph(network(run), IMAGES)
    proof = graph.verify(HALF)
    assert (proof.difference, proof.reason, proof.holds) == (float("inf"), reason, False)
    with pytest.raises(GraphError, match="does not equal"):
        graph.prune(HALF, verify=True)


@pytest.mark.parametrize(
    "answer",
    [
        lambda out: (out * 1e6).long(),
        lambda out: (out * 1e6).long() % 2 == 0,
        lambda out: torch.complex(torch.zeros_like(out), out),
        lambda out: out.to_sparse(),
        lambda out: out.masked_fill(torch.tensor([False, True] * 2 + [False]), -torch.inf),
    ],
    ids=["whole numbers", "truth values", "complex", "sparse", "masked by infinity"],
)
def test_outputs_of_every_kind_are_compared(answer):
    graph = ChannelGraph(network(lambda net, x: answer(logits(net, x))), IMAGES)
    assert graph.verify(HALF).holds
    assert not unmasked(graph).verify(HALF).holds


def test_a_thin_network_that_fails_is_a_failed_proof():
    def run(net, x):
        if net.armed and len(net.stem[0].weight) < 8:
            raise RuntimeError("too thin")
        return logits(net, x)

    model = network(run)
    model.armed = False
    graph = ChannelGraph(model, IMAGES)
    assert graph.verify(HALF).holds
    model.armed = True
    proof = graph.verify(HALF)
    assert not proof.holds and proof.reason == "the thin network fails: RuntimeError: too thin"


def test_a_network_for_positive_input_is_proven_on_positive_input():
    graph = ChannelGraph(network(lambda net, x: logits(net, x.sqrt())), IMAGES)
    assert graph.verify(HALF).difference < 1e-12
    assert not unmasked(graph).verify(HALF).holds


class Single(nn.Module):
    """Works in single precision whatever comes, as norms of published networks do."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() * (1 / 3)).to(x.dtype)


@pytest.mark.parametrize(
    ("run", "tolerance"),
    [
        (logits, 1e-8),
        (lambda net, x: net.head(Single()(net.stem(x))), 1e-3),
        (lambda net, x: net.head(net.stem(x) + torch.zeros(1)), 1e-8),
        (lambda net, x: net.head(net.stem(x).half().to(x.dtype)), 1e-2),
        (lambda net, x: net.head(net.stem(x).bfloat16().to(x.dtype)), 5e-2),
    ],
    ids=["double", "single within", "single constant", "half within", "bfloat16 within"],
)
def test_the_tolerance_follows_the_precision_the_channels_were_held_in(run, tolerance):
    proof = ChannelGraph(network(run), IMAGES).verify(HALF)
    assert proof.tolerance == tolerance
    assert proof.difference < tolerance / 2


def test_a_network_that_insists_on_single_precision_is_proven_in_it():
    def run(net, x):
        assert x.dtype == torch.float32
        return logits(net, x)

    proof = ChannelGraph(network(run), IMAGES).verify(HALF)
    assert proof.tolerance == 1e-3
    assert proof.difference < 1e-5


def test_a_proof_holds_up_to_its_tolerance():
    assert Proof(1e-8, 1e-8).holds
    assert not Proof(1.01e-8, 1e-8).holds
    assert not Proof(float("nan"), 1e-8).holds


@pytest.mark.parametrize(
    ("found", "expected", "gap"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([1.0, 2.0], [1.0, float("nan")], float("inf")),
        ([1.0, float("nan")], [1.0, 2.0], float("inf")),
        ([1.0, float("inf")], [1.0, 2.0], float("inf")),
        ([1.0, -float("inf")], [1.0, float("inf")], float("inf")),
        ([1.0, float("inf")], [2.0, float("inf")], 0.5),
        ([1, 2], [1, 3], float("inf")),
        ([1, 2], [1, 2], 0.0),
        ([1, 2], [1.0, 2.0], float("inf")),
        ([True, False], [True, True], float("inf")),
        ([1.0], [1.0, 1.0], float("inf")),
        ([], [], 0.0),
    ],
)
def test_differences(found, expected, gap):
    assert difference(torch.tensor(found), torch.tensor(expected))[0] == gap


def test_a_good_output_does_not_hide_a_bad_one():
    good, bad = torch.ones(2), torch.tensor([float("nan"), 1.0])
    for found in ([good, bad], [bad, good]):
        assert difference(found, [good, good])[0] == float("inf")
    assert difference([good, good * 3], [good, good])[0] == 2.0
    assert difference([good * 3, good], [good, good])[0] == 2.0
    assert difference([good], [good, good])[0] == float("inf")


def test_the_probe_takes_no_missing_number_for_an_answer():
    whole, torn = np.array([1.0, 2.0]), np.array([1.0, np.nan])
    assert close(whole, whole, torch.float64)
    assert close(torn, torn, torch.float64)  # a mask of infinities, taken back by what follows
    assert not close(torn, whole, torch.float64)
    assert not close(whole, torn, torch.float64)
    assert close(whole + 1e-4, whole, torch.float32) and not close(whole + 1e-4, whole, torch.float64)


def test_every_small_network_has_numbers_to_compare():
    for name in ("plain_chain", "class_map_output", "dataclass_output"):
        model, example = NETWORKS[name]()
        graph = ChannelGraph(model, example)
        assert graph.verify(graph.full_genome()).reason == ""
