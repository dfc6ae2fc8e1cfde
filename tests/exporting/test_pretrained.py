"""Pruned networks of transformers are read by `from_pretrained`; other networks are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import deeppruning as dp
from deeppruning.errors import InputError, WeightsError
from search_helpers import TinyNet

INPUTS = torch.randn(48, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_network_that_is_not_of_transformers_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (the extra examples)")
    with pytest.raises(InputError, match=r"TinyNet.*safetensors or hub"):
        dp.export(
            TinyNet(12), format="transformers", out=tmp_path / "thin", example_input=torch.zeros(1, 1, 8, 8)
        )


def networks() -> dict[str, Any]:
    """Small networks with random weights, by the name of their class."""
    import transformers as hf

    small = {"num_labels": 4}
    return {
        "resnet": lambda: hf.ResNetForImageClassification(
            hf.ResNetConfig(
                embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", **small
            )
        ),
        "regnet": lambda: hf.RegNetForImageClassification(
            hf.RegNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], groups_width=8, **small)
        ),
        "convnext": lambda: hf.ConvNextForImageClassification(
            hf.ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, **small)
        ),
    }


@pytest.mark.slow  # transformers takes seconds to import
@pytest.mark.parametrize("name", ["resnet", "regnet", "convnext"])
def test_the_thin_folder_is_read_by_from_pretrained(name: str, tmp_path: Path) -> None:
    hf = pytest.importorskip("transformers", reason="transformers is not installed (the extra examples)")
    torch.manual_seed(0)
    model: nn.Module = networks()[name]().eval()
    search = dp.SearchConfig(generations=1, offspring=4)
    front = dp.search(model, {"pixel_values": INPUTS}, search=search, workers=1, progress=False)
    thin = front.at(flops=0.8)
    written = dp.export(thin, format="transformers", out=tmp_path / "thin", example_input=INPUTS[:1])
    assert written.difference < 1e-5
    again = hf.AutoModelForImageClassification.from_pretrained(
        tmp_path / "thin", trust_remote_code=True
    ).eval()
    assert isinstance(again, type(model))
    assert sum(each.numel() for each in again.parameters()) == thin.params < front.original.params
    with torch.no_grad():
        torch.testing.assert_close(again(INPUTS).logits, thin.model.eval()(INPUTS).logits)
    again.save_pretrained(tmp_path / "trained")  # as after further training
    assert json.loads((tmp_path / "trained" / "config.json").read_text())["deeppruning_cut"]


@pytest.mark.slow
def test_a_folder_without_its_cut_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (the extra examples)")
    from deeppruning.exporting.pretrained import pruned

    model = networks()["resnet"]()
    with pytest.raises(WeightsError, match=r"ResNetForImageClassification.*deeppruning_cut"):
        pruned(type(model), __name__)(model.config)
