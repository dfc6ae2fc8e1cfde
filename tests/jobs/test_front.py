"""The search by inputs alone: no labels, no training, thin networks for any limit."""

import warnings
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import deeppruning as dp
from deeppruning.data.batches import normalize
from deeppruning.errors import Diverged, InputError, RunError
from deeppruning.jobs import imitating
from deeppruning.jobs.imitating import imitate, refit_again
from deeppruning.jobs.solution import read_solution
from deeppruning.searching.unlabelled import Unlabelled, drift, gather_inputs
from deeppruning.training.loop import teach
from search_helpers import digits

QUICK = dp.SearchConfig(offspring=6, generations=3, low=0.1, high=0.9, bins=6)


class Net(nn.Module):
    """A residual block that can go, and two outputs of different kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 12, 3, padding=1)
        self.inner = nn.Conv2d(12, 10, 3, padding=1)
        self.outer = nn.Conv2d(10, 12, 3, padding=1)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor, gain: Tensor) -> dict[str, Tensor]:
        x = torch.relu(self.stem(x)) * gain[:, None, None, None]
        x = x + self.outer(torch.relu(self.inner(x)))
        return {"map": x.mean(1), "scores": self.head(x.mean((2, 3)))}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(3)
    return Net().eval()


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(80, 2, 6, 6, generator=generator), torch.rand(80, generator=generator) + 0.5


@pytest.fixture(scope="module")
def front(net: Net, inputs: tuple[Tensor, Tensor]):
    return dp.search(net, inputs, search=QUICK, workers=1)


def judged(front, id_: int) -> float:
    return next(one.evaluated.judged for one in front.candidates if one.id == id_)


def test_the_best_within_a_limit_is_a_refitted_network(
    front, net: Net, inputs: tuple[Tensor, Tensor]
) -> None:
    found = front.at(flops=0.5)
    assert 0 < found.flops <= 0.5 * front.original.flops
    graph = dp.ChannelGraph(net, tuple(part[:1] for part in inputs), depth=True)
    assert graph.flops(found.genome) == found.flops and graph.params(found.genome) == found.params
    affordable = [one for one in front.candidates if one.flops <= 0.5 * front.original.flops]
    assert judged(front, found.id) == min(one.evaluated.judged for one in affordable)
    with torch.no_grad():
        wanted, refitted, cut = (model(*inputs) for model in (net, found.model, graph.prune(found.genome)))
    assert drift(wanted, refitted).score < drift(wanted, cut).score
    assert refitted["map"].shape == (80, 6, 6) and refitted["scores"].shape == (80, 5)


def test_a_network_trained_elsewhere_is_saved_as_a_run_saves_it(
    front, net: Net, inputs: tuple[Tensor, Tensor], tmp_path
) -> None:
    found = front.at(flops=0.5)
    network = found.model
    with torch.no_grad():
        network.head.bias += 1.0  # some training
    for number, given in enumerate((deepcopy(network), nn.DataParallel(network), nn.Sequential(network))):
        path = front.save(given, tmp_path / "nets" / f"{number}.safetensors", test_error=0.125)
        with torch.no_grad():
            wanted, again = network(*inputs), dp.load(path, Net())(*inputs)
        assert all(torch.equal(wanted[name], again[name]) for name in wanted)
    metadata, _ = read_solution(path)
    assert metadata["candidate"] == str(found.id) and metadata["test_error"] == "0.125"
    assert int(metadata["flops"]) == found.flops and "base" in metadata
    knee = front.save(front.knee, tmp_path / "knee.safetensors")
    assert read_solution(knee)[0]["role"] == "knee"


def test_a_cut_of_ones_own_is_saved_and_another_network_refused(front, net: Net, inputs, tmp_path) -> None:
    graph = dp.ChannelGraph(net, tuple(part[:1] for part in inputs))
    genome = graph.full_genome()
    genome[3:7] = False
    thin = dp.refit(graph, genome, inputs)
    path = dp.save(thin, tmp_path / "thin.safetensors", graph, genome)
    with torch.no_grad():
        assert torch.equal(dp.load(path, Net())(*inputs)["map"], thin(*inputs)["map"])
    with pytest.raises(InputError, match=r"not the one that this genome cuts: inner\.bias is \(10,\)"):
        dp.save(net, path, graph, genome)
    with pytest.raises(InputError, match=r"name it thin.safetensors"):
        dp.save(thin, tmp_path / "thin.pt", graph, genome)
    with pytest.raises(InputError, match="Net is not one network of this search"):
        front.save(thin, path)


def test_limits_may_be_numbers_and_go_together(front) -> None:
    most = front.knee.flops
    assert front.at(flops=most).flops <= most
    both = front.at(flops=0.6, params=0.4)
    assert both.flops <= 0.6 * front.original.flops and both.params <= 0.4 * front.original.params
    assert f"candidate {both.id}" in repr(both)


def test_the_three_picks(front) -> None:
    assert front.light.flops <= front.knee.flops <= front.heavy.flops < front.original.flops
    assert front.heavy.train_error <= front.knee.train_error <= front.light.train_error


def test_the_original_and_the_global_generator_are_left_alone(
    net: Net, inputs: tuple[Tensor, Tensor]
) -> None:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state = torch.get_rng_state()
    dp.search(net, inputs, search=dp.SearchConfig(offspring=2, generations=1), workers=1)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


class Dressed(Net):
    """The same network, its outputs in objects."""

    def forward(self, x: Tensor, gain: Tensor) -> SimpleNamespace:  # type: ignore[override]
        found = super().forward(x, gain)
        return SimpleNamespace(name="a", map=found["map"], rest=Scored(found["scores"]))


@dataclass
class Scored:
    scores: Tensor


def test_outputs_in_objects_are_judged_as_those_in_a_dict(front, net: Net, inputs) -> None:
    dressed = Dressed().eval()
    dressed.load_state_dict(net.state_dict())
    found = dp.search(dressed, inputs, search=QUICK, workers=1)
    assert [one.evaluated.judged for one in found.candidates] == [
        one.evaluated.judged for one in front.candidates
    ]
    assert found.at(flops=0.5).model(*inputs).rest.scores.shape == (80, 5)


@pytest.mark.slow  # test_guided_search.py does the same with a whole run
def test_two_workers_find_what_one_does(front, net: Net, inputs: tuple[Tensor, Tensor]) -> None:
    again = dp.search(net, inputs, search=QUICK, workers=2)
    for one, other in zip(front.candidates, again.candidates, strict=True):
        assert np.array_equal(one.genome, other.genome)
        assert one.evaluated.judged == other.evaluated.judged


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({}, "say what the network may cost"),
        ({"flops": -1}, "target 'flops=-1': it is not a number"),
        ({"flops": 40}, r"40% or 40M\?"),
        ({"params": True}, "target params must be a number"),
    ],
)
def test_limits_that_cannot_be_met_are_refused(front, limits: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        front.at(**limits)


def test_costs_and_drift_are_limited_as_for_a_result(front) -> None:
    with pytest.raises(RunError, match=r"keeps flops=0\.01%; the nearest is candidate \d+: .*low="):
        front.best(flops=0.0001)
    small = front.best(size="50%", latency="10s")
    assert (
        sum(tensor.nbytes for tensor in small.model.state_dict().values()) <= 0.5 * front.meter.whole["size"]
    )
    assert (small.test_error, small.path) == (None, None) and 0.0 < small.flops_pruned < 1.0
    drift = front.knee.train_error
    within = [one for one in front.candidates if one.train_error <= drift and not one.genome.all()]
    assert front.best(error=drift).flops == min(one.flops for one in within)
    assert front.best(error=f"+{100 * drift}%", flops=0.9).train_error <= drift
    with pytest.raises(RunError, match=r"keeps error=1e-06%.*the nearest is candidate \d+"):
        front.best(error=1e-8)
    with pytest.raises(TypeError, match="flop"):
        front.best(flop=0.5)


def test_too_few_inputs_and_evaluations_that_need_labels_are_refused(net: Net) -> None:
    few = (torch.zeros(20, 2, 6, 6), torch.ones(20))
    with pytest.raises(InputError, match=r"at least 32 inputs.*got 20"):
        dp.search(net, few, search=QUICK)
    with pytest.raises(InputError, match="no labels"):
        dp.search(net, few, search=dp.SearchConfig.paper())


class Pairs(Dataset):
    """Pictures with labels that nobody needs."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((2, 3), float(index)), index


def test_inputs_are_gathered_from_any_form() -> None:
    assert gather_inputs(Pairs(), 10)[:, 0, 0].tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]
    assert gather_inputs(TensorDataset(torch.arange(6.0)), 100).tolist() == [0, 1, 2, 3, 4, 5]
    pairs = DataLoader(TensorDataset(torch.arange(6.0), torch.zeros(6)), batch_size=4)
    assert gather_inputs(pairs, 5).tolist() == [0, 1, 2, 3, 4]
    named = [{"x": {"deep": (torch.ones(2), torch.zeros(1))}, "name": "a", "labels": torch.ones(1)}] * 3
    nested = gather_inputs(DataLoader(named, batch_size=2), 3)
    assert nested.keys() == {"x"} and [part.shape for part in nested["x"]["deep"]] == [(3, 2), (3, 1)]
    one, _ = digits(10, 10)
    assert torch.equal(gather_inputs(one, 5), normalize(one.images[::2], one.normalization))
    batch = {"x": torch.zeros(4, 2)}
    assert gather_inputs(batch, 2) is batch
    with pytest.raises(InputError, match="got int"):
        gather_inputs(3, 2)
    with pytest.raises(InputError, match="empty"):
        gather_inputs(TensorDataset(torch.zeros(0, 2)), 2)


def test_no_input_is_both_refitted_on_and_judged_by(net: Net) -> None:
    task = Unlabelled(net, (torch.arange(50.0)[:, None, None, None].expand(50, 2, 6, 6), torch.arange(50.0)))
    refitted = set(task.refit_inputs()[1].tolist())
    judged = set(task._part(refitted=False)[0][1].tolist())
    assert refitted.isdisjoint(judged) and len(refitted | judged) == 50
    assert len(task.refit_inputs(final=True)[1]) == 50
    assert task.untrained_error(net) == 0.0


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_inputs_are_taken_in_the_precision_of_the_network(kind: torch.dtype) -> None:
    torch.manual_seed(1)
    layers = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    images = digits(60)[0].images.double() / 255  # as NumPy makes them
    options = dp.SearchConfig(offspring=2, generations=1)
    front = dp.search(nn.Sequential(*layers).to(kind), images, search=options, workers=1)
    assert {weight.dtype for weight in front.knee.model.parameters()} == {kind}
    assert front.knee.model(images[:2].to(kind)).dtype == kind


def test_inputs_that_cannot_be_searched_by_say_what_they_are() -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3))
    images = digits(60)[0].images.float()
    with pytest.raises(InputError, match="contain NaN or infinity"):
        dp.search(network, images / 0)
    with pytest.raises(InputError, match=r"got 1; each entry of a list.*torch\.stack"):
        dp.search(network, list(images))
    with pytest.raises(InputError, match="got str"):
        dp.search(network, "photos/")
    with pytest.raises(InputError, match=r"must be a torch\.nn\.Module, got type"):
        dp.search(nn.ReLU, images)  # type: ignore[arg-type]


def test_a_data_set_is_read_as_far_as_there_is_room() -> None:
    class Entries(Dataset):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
            return torch.full((5,), float(number)), 0

    size = 5 * 4
    assert gather_inputs(Entries(), 50, 10 * size)[:, 0].tolist() == [*range(0, 100, 10)]
    assert len(gather_inputs(Entries(), 50)) == 50
    assert len(gather_inputs(DataLoader(Entries(), batch_size=4), 50, 10 * size)) == 12
    streamed = gather_inputs(iter_of(Entries()), 50, 10 * size)
    assert streamed[:, 0].tolist() == [*range(10)]


def iter_of(entries: Dataset) -> IterableDataset:
    class Streamed(IterableDataset):
        def __iter__(self):
            return (entries[number] for number in range(len(entries)))

    return Streamed()


def test_tuning_is_judged_by_inputs_that_no_refit_has_seen() -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    network = nn.Sequential(*layers).eval()
    inputs = torch.randn(200, 1, 8, 8, dtype=torch.float64)  # of another precision than the network
    options = dp.SearchConfig(offspring=2, generations=1, round_to=1)
    solution = dp.search(network, inputs, search=options, workers=1).at(flops=0.8)
    context, seen = solution.search, []

    def refitted_on(some: tuple[torch.Tensor]) -> nn.Module:
        seen.append(some[0])
        return refit_again(context.graph, solution.genome, some, 8.0)

    done = imitate(
        solution.model, network, solution.recipe, refitted_on, inputs, dp.FinetuneConfig(epochs=1, lr=1e-9)
    )
    kept = [row for row in range(200) if row % 10 != 9]
    assert [some.shape[0] for some in seen] == [180] and torch.equal(seen[0], inputs[kept].float())
    held = inputs[9::10].float()
    with torch.no_grad():
        alone = drift(network(held), refit_again(context.graph, solution.genome, seen[0], 8.0)(held))
    assert done.before == pytest.approx(alone.judged, rel=1e-4)
    short = dp.finetune(solution, inputs, finetune=dp.FinetuneConfig(epochs=0))
    assert short is solution
    with pytest.raises(InputError, match="threads must be"):
        dp.finetune(solution, inputs, threads=-1)


def test_a_retry_at_a_lower_rate_is_told(monkeypatch) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)).eval()
    inputs = torch.randn(200, 1, 8, 8)
    options = dp.SearchConfig(offspring=2, generations=1, round_to=1)
    solution = dp.search(network, inputs, search=options, workers=1).at(flops=0.8)
    rates: list[float] = []

    def diverges_at_first(model: nn.Module, lesson: Any, config: dp.FinetuneConfig, **where: Any) -> Any:
        rates.append(config.lr)
        if len(rates) == 1:
            raise Diverged("the loss is inf")
        return teach(model, lesson, config, **where)

    monkeypatch.setattr(imitating, "teach", diverges_at_first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuned = dp.finetune(solution, inputs, finetune=dp.FinetuneConfig(epochs=1, lr=0.01))
    assert rates == pytest.approx([0.01, 0.001]) and tuned.lr_factor == 0.1
