"""A folder for the Hugging Face Hub: it loads again, says what is in it, and its card is valid."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import deeppruning as dp
from deeppruning.cli.main import cli
from deeppruning.errors import InputError
from deeppruning.exporting.card import _how_tuned
from deeppruning.jobs.solution import read_solution
from search_helpers import STORED_RUN, TinyNet, stored_net

with_hub = pytest.mark.skipif(
    find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed (the extra hub)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "knee"
    written = dp.export(STORED_RUN, stored_net(), format="hub", out=out)
    assert written.path == out and written.difference == 0.0
    return out


def test_the_folder_loads_like_the_solution(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = dp.load(STORED_RUN / "knee.safetensors", TinyNet())(images)
    assert torch.equal(dp.load(folder, TinyNet())(images), expected)


def test_the_config_holds_the_cut_and_the_costs(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    metadata, weights = read_solution(STORED_RUN / "knee.safetensors")
    assert config["params"] == int(metadata["params"]) and config["flops"] == int(metadata["flops"])
    assert config["cut"] == json.loads(metadata["cut"])
    assert config["library_name"] == "deeppruning"
    assert sum(tensor.numel() for name, tensor in weights.items() if name == "linear.weight") > 0


def test_the_card_shows_the_figures_of_the_run(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    metadata, _ = read_solution(STORED_RUN / "knee.safetensors")
    assert card.startswith("---\nlibrary_name: deeppruning\n")
    assert (
        f"{int(metadata['params']):,} |" in card
        and f"{100 * json.loads(metadata['test_error']):.2f} %" in card
    )
    assert "dp.load(folder, MyNet())" in card and "To be filled in" in card
    assert str(STORED_RUN.parent) not in card


@with_hub
def test_huggingface_reads_the_card(folder: Path) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "deeppruning" and card.data.license == "other"
    assert card.data.pipeline_tag == "image-classification" and "structured-pruning" in card.data.tags
    assert "| parameters |" in card.text


@with_hub
def test_huggingface_reads_the_accuracy_of_a_run_on_named_data() -> None:
    from huggingface_hub import ModelCard

    from deeppruning.exporting.card import _card_header

    header = _card_header({"test_error": "0.0625", "classes": "[]"}, {"model": "a: b", "data": "digits"})
    card = ModelCard(f"{header}\n\n# text")
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("accuracy", 0.9375, "digits")
    assert card.data.model_name == "a: b, pruned"


@pytest.mark.parametrize(
    ("metadata", "recorded", "finetune", "words"),
    [
        ({}, {}, {"epochs": 1.0}, "was fine-tuned for 1 epoch"),
        ({}, {}, {"epochs": 0.1}, "was fine-tuned for 0.1 epochs"),
        ({}, {}, {"minutes": 10.0}, "was fine-tuned for 10 minutes"),
        ({}, {}, {"epochs": 0.0}, "was not trained after its cut"),
        (
            {"candidate": "7"},
            {"plan/candidate-7": {"epochs": 0.0}},
            {"minutes": 0.01},
            "was not trained after its cut",
        ),
        (
            {"refitted": "true"},
            {},
            {"epochs": 3},
            "has the weights from before fine-tuning, which did not help",
        ),
        (
            {"candidate": "7", "role": "candidate-7"},
            {"training/candidate-7/1a2b3c4d": {"epochs": 4}},
            {"epochs": 3},
            "was fine-tuned for 4 epochs",
        ),
        (
            {"candidate": "7", "role": "knee"},
            {"training/candidate-7/1a2b3c4d": {"epochs": 4}},
            {"epochs": 3},
            "was fine-tuned for 3 epochs",
        ),
    ],
)
def test_the_card_says_how_long_a_network_was_trained(metadata, recorded, finetune, words) -> None:
    assert _how_tuned(metadata, recorded, finetune) == words


def test_the_card_of_a_search_by_inputs_says_that_nothing_was_trained(tmp_path: Path) -> None:
    model, images = stored_net(), torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    front = dp.search(model, images, search=dp.SearchConfig(offspring=2, generations=1))
    thin = front.at(flops=0.6)
    dp.export(thin, format="hub", out=tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "# TinyNet, pruned" in card
    assert "were computed in closed form from inputs without labels; it was not trained." in card
    assert json.loads((tmp_path / "hub" / "config.json").read_text())["params"] == thin.params


def test_the_config_has_a_line_for_each_key(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    assert len(text.splitlines()) == len(json.loads(text)) + 2


def test_the_original_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a pruned network that is saved"):
        dp.export(STORED_RUN, stored_net(), solution="original", format="hub", out=tmp_path / "hub")


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "hub").write_text("mine")
    with pytest.raises(InputError, match="is a file; name a folder"):
        dp.export(STORED_RUN, stored_net(), format="hub", out=tmp_path / "hub")
    assert (tmp_path / "hub").read_text() == "mine"


def test_push_is_for_hub_folders(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["export", str(STORED_RUN), "--push", "me/net"])
    assert isinstance(done.exception, InputError) and "--format hub" in str(done.exception)


@with_hub
@pytest.mark.parametrize(
    ("name", "message"),
    [("net", "as USER/NAME"), ("me/a b", "not the name of a repository"), ("me/net", "hf auth login")],
)
def test_push_is_checked_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    arguments = ["export", str(STORED_RUN), "--format", "hub", "--out", str(tmp_path / "hub"), "--push", name]
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, InputError) and message in str(done.exception)
    assert not (tmp_path / "hub").exists()
