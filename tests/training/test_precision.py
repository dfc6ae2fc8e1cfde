"""Training in bfloat16, and the measurement that decides about it."""

import pytest
import torch
from torch import Tensor, nn

from deeppruning.config import FinetuneConfig, TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.training.distillation import Loss
from deeppruning.training.labelled import Labelled
from deeppruning.training.loop import fit
from deeppruning.training.planning import FEWEST_FORMATTED, Plan, leaves_open, plan_training

DATA = ImageSet(
    torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 2, ("a", "b")
)
CPU = torch.device("cpu")
BATCHES = 8  # of an epoch, with batches of 8
LONG, SHORT = FEWEST_FORMATTED / BATCHES, (FEWEST_FORMATTED - 1) / BATCHES


class Slowed(nn.Module):
    """A network with so much more work in one number format that no processor makes up for it."""

    def __init__(self, slow: torch.dtype) -> None:
        super().__init__()
        self.slow = slow
        self.layer = nn.Linear(16, 2)
        self.seen: set[torch.dtype] = set()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x.flatten(1))
        self.seen.add(outputs.dtype)
        if outputs.dtype == self.slow:
            work = torch.ones(400, 400, dtype=torch.float64)
            outputs = outputs + 0.0 * (work @ work)[0, 0].to(outputs.dtype)
        return outputs


class Insisting(nn.Module):
    """A network whose own code takes float32 only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x.flatten(1))
        assert outputs.dtype == torch.float32
        return outputs


def options(**changed: object) -> FinetuneConfig:
    return FinetuneConfig(
        **{"epochs": LONG, "lr": 0.01, "batch_size": 8, "crop": 0, "flip": False, **changed}
    )


def plan(model: nn.Module, config: FinetuneConfig) -> Plan:
    return plan_training(model, Labelled(DATA, config, Loss(), CPU), config, CPU)


@pytest.mark.parametrize(
    ("slow", "chosen"), [(torch.float32, "bfloat16"), (torch.bfloat16, "float32")], ids=str
)
def test_the_faster_format_is_chosen(slow: torch.dtype, chosen: str):
    assert plan(Slowed(slow), options()).precision == chosen


def test_code_that_takes_float32_only_is_trained_in_it():
    assert plan(Insisting(), options()).precision == "float32"


@pytest.mark.parametrize("changed", [{"epochs": SHORT}, {"precision": "float32"}, {"precision": "bfloat16"}])
def test_nothing_is_measured_for_short_trainings_or_a_format_that_is_given(changed: dict[str, object]):
    config = options(**changed)
    model = Slowed(torch.float32)
    assert plan(model, config).precision == config.precision
    assert model.seen == set()
    assert not leaves_open(Labelled(DATA, config, Loss(), CPU), config, CPU)


def test_a_time_holds_more_steps_in_the_faster_format():
    config = options(epochs=None, minutes=10)
    found = plan(Slowed(torch.float32), config)
    assert found.precision == "bfloat16"
    assert found.step_seconds is not None
    assert round(found.epochs * BATCHES) == int(600 / found.step_seconds)


def test_bfloat16_runs_in_layers_and_leaves_weights_in_float32():
    model = Slowed(torch.float64)
    fit(model, DATA, TrainConfig(epochs=1, lr=0.1, batch_size=8, crop=0, flip=False, precision="bfloat16"))
    assert model.seen == {torch.bfloat16}
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


def test_the_paper_is_trained_in_float32():
    assert FinetuneConfig.paper().precision == "float32"
