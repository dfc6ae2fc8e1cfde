"""What the channel graph could not follow is told when a run starts, and stands on its page."""

from typing import Any

import torch
from torch import Tensor

import deeppruning as dp
from deeppruning.reporting.data import collect
from deeppruning.searching.events import Remark
from search_helpers import TinyNet, digits, quick_finetune, quick_search


class Wary(TinyNet):
    """Looks at its input before it goes on."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if float(x.abs().max()) < 1000 else x / 1000)


def test_values_that_are_read_are_told_and_shown(tmp_path):
    torch.manual_seed(0)
    train, test = digits(train=60, test=30)
    heard: list[Any] = []
    options = {"search": quick_search(generations=1), "finetune": quick_finetune(epochs=0), "workers": 1}
    dp.prune(Wary(), train, test, observer=heard.append, run_dir=tmp_path / "run", **options)
    note = "item in forward reads values: what they decide about was followed for the example input only"
    told = [event.text for event in heard if isinstance(event, Remark) and event.about == "network"]
    assert told == [note]
    assert collect(tmp_path / "run")["notes"] == [note]
