"""Data of one's own: a sample that fits it, and every mistake told before a network is trained."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import deeppruning as dp
from cli_calls import call
from cli_search import FACTORY
from deeppruning.config import USUAL_SAMPLE, SearchConfig
from deeppruning.data.images import ImageSet
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample
from deeppruning.errors import DeepPruningError, InputError
from deeppruning.jobs.classification import settle_sample
from deeppruning.runs.folder import RunFolder

QUICK = ("--offspring", 2, "--generations", 1, "--finetune-epochs", 0, "--workers", 1, "--device", "cpu")
UNEVEN = {"ant": 30, "bee": 20, "cat": 80}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with uneven data and files of the user's own."""
    home = tmp_path_factory.mktemp("own")
    (home / "nets.py").write_text(
        FACTORY
        + "\ndef narrow(num_classes, in_channels, image_size):\n    return tiny(2, in_channels, image_size)\n"
    )
    labels = np.repeat(np.arange(3), [count + 4 for count in UNEVEN.values()])
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 8, 8), dtype=np.uint8)
    held_out = np.concatenate([np.flatnonzero(labels == label)[:4] for label in range(3)])
    kept = np.setdiff1d(np.arange(len(labels)), held_out)
    np.savez(
        home / "uneven.npz", x_train=images[kept], y_train=labels[kept], x_test=images[held_out],
        y_test=labels[held_out],
    )  # fmt: skip
    (home / "file").write_text("")
    return home


def sets_of(counts: list[int]) -> ImageSet:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return ImageSet(torch.zeros(len(labels), 1, 1, 1), labels, tuple(f"c{n}" for n in range(len(counts))))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(0, 5))
def test_a_sample_that_nobody_asked_for_can_always_be_taken(counts: list[int], seed: int) -> None:
    data = sets_of(counts)
    settled, note = settle_sample(SearchConfig(seed=seed), data)
    taken = balanced_sample(data, min(settled.sample or 0, len(data)), seed).labels.bincount()
    assert int(taken.max() - taken.min()) <= 1
    if note:  # less than usual: as many of each class as the smallest has
        assert taken.tolist() == [min(counts)] * len(counts) and f"{settled.sample} images" in note
    else:
        assert settled.sample == USUAL_SAMPLE and int(taken.sum()) == min(USUAL_SAMPLE, len(data))


def test_a_sample_that_was_asked_for_is_taken_as_it_is() -> None:
    asked = SearchConfig(sample=USUAL_SAMPLE)
    assert settle_sample(asked, sets_of([30, 20])) == (asked, "")


@pytest.mark.slow
def test_uneven_data_is_pruned_from_the_command_line_and_told(home: Path, tmp_path: Path) -> None:
    given = (f"{home}/nets.py:tiny", "--data", home / "uneven.npz", "--train-epochs", 0, *QUICK)
    said = call("prune", *given, "--out", tmp_path / "run").stdout
    assert "the sample has 60 images, 20 of each class: the smallest class, '1', has no more" in said
    with RunFolder.open(tmp_path / "run", read_only=True) as run:
        assert run.config["search"]["sample"] == 60
    (tmp_path / "run" / "knee.safetensors").unlink()
    assert "knee" in call("resume", tmp_path / "run").stdout
    assert (tmp_path / "run" / "knee.safetensors").is_file()
    # Without the images that an error is checked on there are not 60 balanced ones any more.
    assert "met by candidate" in call("pick", tmp_path / "run", "--target", "error=+100%").stdout


@pytest.mark.slow
def test_the_sample_is_taken_from_what_is_not_set_aside(home: Path, tmp_path: Path) -> None:
    given = (f"{home}/nets.py:tiny", "--data", home / "uneven.npz", "--train-epochs", 0, *QUICK)
    said = call("prune", *given, "--target", "error=+100%", "--out", tmp_path / "run").stdout
    assert "the sample has 54 images, 18 of each class: the smallest class, '1', has no more" in said
    assert (tmp_path / "run" / "target.safetensors").is_file()


def test_from_python_it_is_a_warning_and_the_usual_options_stay_usual(home: Path, tmp_path: Path) -> None:
    splits = load_data(str(home / "uneven.npz"))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    )  # fmt: skip
    search = SearchConfig(offspring=1, generations=1, evaluation="recalibrate")
    tuning = dp.FinetuneConfig(epochs=0)
    with pytest.warns(UserWarning, match="the sample has 60 images, 20 of each class"):
        dp.prune(
            model,
            splits.train,
            splits.test,
            run_dir=tmp_path / "a",
            search=search,
            finetune=tuning,
            workers=1,
        )
    with pytest.raises(InputError, match=r"a balanced sample of 70 needs .* ask for at most 60"):
        dp.prune(
            model, splits.train, splits.test, run_dir=tmp_path / "b", finetune=tuning, workers=1,
            search=SearchConfig(sample=70),
        )  # fmt: skip


# Everything that can be known of a job before its network is trained, by the option that gets it wrong.
MISTAKES = {
    "model": (("MODEL", "resnet57"), "unknown model 'resnet57'; did you mean"),
    "factory": (("MODEL", "{home}/nets.py:tinny"), "did you mean tiny"),
    "outputs": (("MODEL", "{home}/nets.py:narrow"), "has 2 outputs but the data has 3 classes"),
    "model option": (("--model-option", "wide=true"), "takes no options, got 'wide'"),
    "data": (("--data", "uneven"), "no data set, folder or file 'uneven'"),
    "data file": (("--data", "{home}/even.npz"), "no data set, folder or file"),
    "mean": (("--mean", "0.5"), "--mean and --std go together"),
    "channels": (("--mean", ".5,.5", "--std", ".5,.5"), "images of 1 channels cannot be normalised"),
    "sample": (("--sample", 100), "a balanced sample of 100 needs .* ask for at most 60"),
    "refit": (("--sample", 30), "a refit needs at least 16 images"),
    "exclude": (("--exclude", "layer9.*"), "unknown layer in exclude 'layer9"),
    "high": (("--high", 0.003, "--low", 0.002), "cannot be cut below"),
    "min channels": (("--min-channels", 64), "nothing of this network can be pruned"),
    "objective": (("--objective", "flop"), "did you mean flops"),
    "objective file": (("--objective", "{home}/none.py:cost"), "there is no file"),
    "objective name": (("--objective", "{home}/nets.py:weight"), "did you mean weigh"),
    "search": (("--mutation", 2), "mutation must lie in"),
    "fine-tuning": (("--finetune-lr", -1), "lr must be at least 0"),
    "training": (("--train-epochs", -1), "epochs must be at least 0"),
    "device": (("--device", "cudda"), "unknown device"),
    "backend": (("--backend", "locall"), "did you mean local"),
    "timeout": (("--candidate-timeout", "soon"), "a time limit must be auto, off or"),
    "out": (("--out", "{home}/file"), "is a file, so no run can be kept in it"),
    "out in use": (("--out", "{home}"), "is not empty"),
    "under a file": (("--out", "{home}/file/run"), "cannot make the folder|Not a directory"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_before_any_training(mistake: str, home: Path, tmp_path: Path) -> None:
    (flag, *values), message = MISTAKES[mistake]
    values = [value.format(home=home) if isinstance(value, str) else value for value in values]
    model = values[0] if flag == "MODEL" else f"{home}/nets.py:tiny"
    given = [] if flag == "MODEL" else [flag, *values]
    usual = ("--data", home / "uneven.npz", "--train-epochs", 1, *QUICK, "--out", tmp_path / "run")
    before = set(home.rglob("*"))
    with pytest.raises(DeepPruningError, match=message):
        call("prune", model, *usual, *given)
    # Training makes its folder first of all.
    assert list(tmp_path.iterdir()) == []
    assert {path for path in home.rglob("*") if "__pycache__" not in path.parts} <= before
