"""The command `models`, and the model's argument and options that the commands share."""

import json
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from deeppruning.cli.main import cli, main
from deeppruning.cli.options.flags import weights_option
from deeppruning.cli.options.inputs import build_model, model_option, parse_model_options
from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError
from deeppruning.models import create_model, list_models


@pytest.mark.slow  # the same figures as in JSON, below
def test_models_prints_a_row_for_each_network():
    result = CliRunner().invoke(cli, ["models"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split()[1:6] for line in result.output.splitlines()[1:] if line.strip()}
    assert set(list_models()) <= set(rows)
    assert rows["resnet56"] == ["56", "0.85", "M", "125.5", "M"]


@pytest.mark.slow
def test_models_as_json():
    rows = json.loads(CliRunner().invoke(cli, ["models", "--json"]).output)
    assert [row["name"] for row in rows] == list_models()
    found = {row["name"]: (row["depth"], row["params"], row["flops"]) for row in rows}
    assert found["vgg16"] == (16, 15249354, 313725952)


def test_model_options_are_parsed_by_kind():
    pairs = ("shortcut=conv", "wide=true", "deep=False", "depth=3", "dropout=0.5", "note=a=b")
    assert parse_model_options(pairs) == {
        "shortcut": "conv",
        "wide": True,
        "deep": False,
        "depth": 3,
        "dropout": 0.5,
        "note": "a=b",
    }


@pytest.mark.parametrize("pairs", [("shortcut",), ("=conv",), ("a b=1",), ("x=1", "x=2")])
def test_bad_model_options_are_refused(pairs):
    with pytest.raises(InputError, match="--model-option"):
        parse_model_options(pairs)


def test_the_decorators_pass_on_model_weights_and_options():
    @click.command()
    @click.argument("model")
    @weights_option
    @model_option
    def show(model: str, weights: Path | None, model_options: dict[str, object]) -> None:
        click.echo(f"{model} {weights} {model_options}")

    arguments = ["resnet20", "--weights", "a.th", "--model-option", "shortcut=conv"]
    assert CliRunner().invoke(show, arguments).output == "resnet20 a.th {'shortcut': 'conv'}\n"
    assert CliRunner().invoke(show, ["vgg16"]).output == "vgg16 None {}\n"


def test_build_model_fits_the_data_and_loads_the_weights(tmp_path):
    images = torch.zeros(3, 1, 8, 12, dtype=torch.uint8)
    data = ImageSet(images, torch.tensor([0, 1, 2]), ("a", "b", "c"))
    stored = create_model("resnet20", num_classes=3, in_channels=1, image_size=8, shortcut="conv")
    save_file(stored.state_dict(), tmp_path / "weights.safetensors")
    model = build_model("resnet20", data, tmp_path / "weights.safetensors", {"shortcut": "conv"}).eval()
    assert torch.equal(model.linear.weight, stored.linear.weight)
    assert model(images.float()).shape == (3, 3)


def test_an_error_in_a_users_forward_names_its_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n"
        "        return x.reshape(7, -1, 11)\n\n\ndef make():\n    return Net()\n"
    )
    given = ["evaluate", f"{tmp_path / 'mine.py'}:make", "--data", "digits"]
    monkeypatch.setattr("sys.argv", ["deeppruning", *given])
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the handler would outlive the test
    with pytest.raises(SystemExit, match="1"):
        main()
    said = capsys.readouterr().err
    assert "error: your code raised RuntimeError: shape" in said and "Traceback" not in said
    assert said.endswith(f"({tmp_path / 'mine.py'}, line 6)\n")
