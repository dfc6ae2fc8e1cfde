"""Lessons without labels: outputs of any form are compared with the teacher's."""

import pytest
import torch
from torch import Tensor, nn

from deeppruning.config import TrainConfig
from deeppruning.errors import InputError
from deeppruning.training.imitation import Imitation, imitation_loss
from deeppruning.training.loop import teach

CPU = torch.device("cpu")


class Nested(nn.Module):
    """Two inputs, and outputs of several kinds."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layer = nn.Linear(4, 3)

    def forward(self, a: Tensor, b: Tensor) -> dict[str, object]:
        hidden = self.layer(a + b)
        return {"boxes": hidden, "more": (hidden.sum(1), hidden.argmax(1))}


def test_every_input_comes_once_and_the_order_follows_from_the_epoch():
    inputs = torch.arange(21.0).view(21, 1)
    lesson = Imitation(inputs, nn.Identity(), TrainConfig(batch_size=4), CPU)
    orders = [torch.cat([args[0] for args, _ in lesson.batches(epoch)]).flatten() for epoch in (1, 2, 1)]
    assert len(lesson.batches(1)) == 5  # the last input alone would have no variance
    assert len(set(orders[0].tolist())) == 20
    assert torch.equal(orders[0], orders[2])
    assert not torch.equal(orders[0], orders[1])


def test_nested_outputs_are_learnt():
    teacher, student = Nested(0), Nested(1)
    inputs = {"a": torch.randn(64, 4), "b": torch.randn(64, 4)}
    config = TrainConfig(epochs=60, lr=0.1, batch_size=16)
    reports = teach(student, Imitation(inputs, teacher, config, CPU), config)
    assert reports[0].train_loss is not None
    assert reports[-1].train_loss is not None
    assert reports[-1].train_loss < 0.01 * reports[0].train_loss


def test_class_scores_are_compared_as_probabilities():
    scores = torch.tensor([[2.0, 0.0, -1.0]])
    assert imitation_loss(scores + 5.0, scores, 4.0).item() == pytest.approx(0.0, abs=1e-5)
    assert imitation_loss((scores + 5.0,) * 2, (scores,) * 2, 4.0).item() > 0.9


def test_a_teacher_of_other_outputs_is_refused():
    with pytest.raises(InputError, match=r"\(2, 3\).*\(2, 4\)"):
        imitation_loss(torch.zeros(2, 3), torch.zeros(2, 4), 4.0)
