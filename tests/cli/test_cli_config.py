"""Options from a TOML file: names as the flags', flags win, mistakes are explained."""

from pathlib import Path

import click
import pytest
import tomli_w
from click.testing import CliRunner

from deeppruning.cli.commands.prune import prune
from deeppruning.cli.commands.train import train
from deeppruning.cli.options.config_file import read_options
from deeppruning.cli.options.search import finetune_settings, search_config
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import InputError
from deeppruning.limits import Limits


def options_of(text: str, folder: Path) -> dict[str, object]:
    (folder / "options.toml").write_text(text)
    return read_options(folder / "options.toml", prune)


def given(folder: Path, text: str, *flags: str) -> dict[str, object]:
    """What `prune` is called with, for this file and these flags."""
    (folder / "options.toml").write_text(text)
    seen: dict[str, object] = {}
    copy = click.Command("prune", params=prune.params, callback=lambda **values: seen.update(values))
    result = CliRunner().invoke(copy, ["--config", str(folder / "options.toml"), *flags])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return seen


def test_flat_and_in_tables_with_either_kind_of_dash(tmp_path):
    seen = given(
        tmp_path,
        """
        eval-epochs = 2
        [search]
        offspring = 4
        eval_lr = 1
        exclude = ["conv1", "layer3.*"]
        [finetune]
        epochs = 7
        finetune-lr = 0.5
        from-scratch = true
        [model]
        model = "resnet20"
        options = { shortcut = "conv", wide = true }
        [data]
        data = "mnist"
        mean = [0.1]
        std = "0.2"
        image-size = 32
        [run]
        workers = 3
        """,
    )
    assert (seen["model"], seen["data"], seen["workers"]) == ("resnet20", "mnist", 3)
    search, function = search_config(seen)
    expected = SearchConfig(offspring=4, eval_epochs=2, eval_lr=1.0, exclude=("conv1", "layer3.*"))
    assert search == expected and function is None
    assert finetune_settings(seen) == {"epochs": 7, "lr": 0.5, "from_scratch": True}
    assert seen["model_options"] == {"shortcut": "conv", "wide": True}
    assert (seen["mean"], seen["std"], seen["image_size"]) == ((0.1,), (0.2,), (32, 32))


@pytest.mark.parametrize(
    "text",
    ['target = "flops=40%"', 'target = ["flops=40%"]', "[target]\nflops = 0.4", "target.flops = '40%'"],
)
def test_a_target_is_a_text_a_list_or_a_table(tmp_path, text):
    assert given(tmp_path, text, "resnet20")["target"] == Limits(flops=0.4)


def test_flags_win(tmp_path):
    seen = given(tmp_path, "offspring = 4\nseed = 1\nflip = true", "vgg16", "--offspring", "9", "--no-flip")
    assert (seen["model"], seen["offspring"], seen["seed"]) == ("vgg16", 9, 1)
    assert seen["finetune_flip"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ofspring = 3", "unknown option 'ofspring'; did you mean offspring"),
        ("[serach]\noffspring = 3", "unknown table 'serach'; did you mean search"),
        ("[finetune]\nepoch = 3", "unknown option 'epoch'"),
        ("offspring = 'twenty'", "offspring must be a whole number, got 'twenty'"),
        ("offspring = true", "offspring must be a whole number, got True"),
        ("mutation = '0.1'", "mutation must be a number"),
        ("flip = 1", "flip must be true or false, got 1"),
        ("exclude = 3", r'exclude must be a text or a list of texts such as \["conv1", "layer3.*"\], got 3'),
        ("target = 0.4", 'target must be a text or a list of texts such as "flops=40%", got 0.4'),
        ("data = 3", "data must be text, got 3"),
        ("image-size = [1, 2, 3]", r"image-size: \[1, 2, 3\] is not a side"),
        ("offspring = 3\n[search]\noffspring = 4", "gives offspring twice"),
        ("offspring = ", "cannot be used: "),
    ],
)
def test_mistakes_are_explained(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        options_of(text, tmp_path)


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_options(tmp_path / "none.toml", prune)


def test_a_runs_own_config_repeats_it(tmp_path):
    search = SearchConfig(offspring=5, exclude=("stem",), threads=2, seed=3)
    tuning = FinetuneConfig(epochs=4, crop=1, flip=False, seed=3)
    tables = {
        "format": 1,
        "version": "0.1.0",
        "search": {**search.to_table(), "exclude": list(search.exclude)},
        "finetune": tuning.to_table(),
        "run": {"workers": 2, "device": "auto", "backend": "local", "candidate_timeout": 9.5},
        "model": {
            "spec": "resnet20",
            "options": {"shortcut": "conv"},
            "weights": "w.th",
            "fingerprint": "00",
        },
        "data": {"data": "digits", "mean": [0.3], "std": [0.4]},
        "objective": {"spec": "mine.py:cost"},
        "code": {"folder": "somewhere"},
    }
    tables["model"]["fingerprint"] = "00"
    seen = given(tmp_path, tomli_w.dumps(tables), "--trust-run")
    again, function = search_config(seen)
    assert (again, function) == (search, "mine.py:cost")
    assert (seen["workers"], seen["candidate_timeout"]) == (2, 9.5)
    assert FinetuneConfig(**finetune_settings(seen), seed=3) == tuning
    assert (seen["model"], seen["weights"], seen["model_options"]) == (
        "resnet20",
        Path("w.th"),
        {"shortcut": "conv"},
    )


def test_train_reads_one_too(tmp_path):
    (tmp_path / "options.toml").write_text("[train]\nepochs = 3\nlr = 0.5\n[data]\ndata = 'mnist'\n")
    assert read_options(tmp_path / "options.toml", train) == {"epochs": 3, "lr": 0.5, "data": "mnist"}
