"""Weights files: every form read, every misfit told, nothing in them run."""

import hashlib
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from deeppruning.data.images import Normalization
from deeppruning.errors import WeightsError
from deeppruning.training import weights
from deeppruning.training.weights import load_weights, normalization_for, read_state_dict

SHARED_WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"


def network(classes=4):
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5, classes))


class RunsCode:
    """What a hostile file holds: unpickling it calls a function of the attacker's choice."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".th", ".pth.tar", ".safetensors"])
def test_weights_survive_the_round_trip(tmp_path, suffix):
    stored, loaded = network(), network()
    path = tmp_path / f"net{suffix}"
    if suffix == ".safetensors":
        save_file(stored.state_dict(), path)
    else:
        torch.save(stored.state_dict(), path)
    load_weights(loaded, path)
    for key, value in stored.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


@pytest.mark.parametrize("wrapper", weights.WRAPPERS)
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_training_states_are_unwrapped(tmp_path, wrapper, prefix):
    stored, loaded = network(), network()
    state = {prefix + key: value for key, value in stored.state_dict().items()}
    torch.save({"epoch": 3, wrapper: state, "best": np.float64(91.5)}, tmp_path / "state.pt")
    assert load_weights(loaded, tmp_path / "state.pt") == ""
    assert_same(loaded, stored)


def assert_same(loaded: nn.Module, stored: nn.Module) -> None:
    for key, value in stored.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)


WRAPPERS = ["model", "backbone", "module", "net", "_orig_mod", "ema_model", "lit"]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.lists(st.sampled_from(WRAPPERS), max_size=4), extra=st.booleans())
def test_names_under_any_prefix_load(tmp_path, names, extra):
    prefix = "".join(f"{name}." for name in names)
    stored, loaded = network(), network()
    state = {prefix + key: value for key, value in stored.state_dict().items()}
    extra = extra and bool(prefix.replace("_orig_mod.", ""))
    state |= {"criterion.weight": torch.ones(4), "teacher.0.weight": torch.ones(2)} if extra else {}
    # As Lightning writes it.
    torch.save({"state_dict": state, "hyper_parameters": {"lr": 0.1}, "epoch": 3}, tmp_path / "last.ckpt")
    note = load_weights(loaded, tmp_path / "last.ckpt")
    assert_same(loaded, stored)
    assert ("2 left out: criterion.weight, teacher.0.weight" in note) if extra else note == ""


def test_wrappers_of_torch_itself(tmp_path):
    stored, loaded = network(), network()
    averaged = torch.optim.swa_utils.AveragedModel(nn.DataParallel(stored))
    torch.save(averaged.state_dict(), tmp_path / "ema.pt")
    assert load_weights(loaded, tmp_path / "ema.pt").endswith("'module.module.'; 1 left out: n_averaged")
    assert_same(loaded, stored)


def test_a_network_that_is_wrapped_itself_keeps_its_names(tmp_path):
    stored, loaded = (nn.ModuleDict({"module": network()}) for _ in range(2))
    torch.save(stored.state_dict(), tmp_path / "net.pt")
    assert load_weights(loaded, tmp_path / "net.pt") == ""
    assert_same(loaded, stored)


def test_of_several_networks_the_one_of_the_usual_name_is_taken(tmp_path):
    stored, other, loaded = network(), network(), network()
    both = nn.ModuleDict({"teacher": other, "model": stored})
    torch.save({"state_dict": both.state_dict()}, tmp_path / "both.ckpt")
    assert "under 'model.'; 9 left out: teacher.0.weight" in load_weights(loaded, tmp_path / "both.ckpt")
    assert_same(loaded, stored)
    torch.save(nn.ModuleDict({"left": other, "right": stored}).state_dict(), tmp_path / "twins.pt")
    with pytest.raises(WeightsError, match=r"holds 2 networks that fit Sequential, under left\., right\."):
        load_weights(loaded, tmp_path / "twins.pt")


def test_a_misfit_under_a_prefix_is_told_by_the_names_of_the_network(tmp_path):
    torch.save(nn.ModuleDict({"model": network(classes=9)}).state_dict(), tmp_path / "nine.pt")
    with pytest.raises(WeightsError, match=r"not fit Sequential under 'model\.': 2 of another shape: 3\."):
        load_weights(network(), tmp_path / "nine.pt")


def test_batch_counters_may_be_absent(tmp_path):
    state = network().state_dict()
    del state["1.num_batches_tracked"]
    torch.save(state, tmp_path / "old.pth")
    model = network()
    load_weights(model, tmp_path / "old.pth")
    assert torch.equal(model[0].weight, state["0.weight"])


def test_a_misfit_lists_all_that_is_wrong_and_changes_nothing(tmp_path):
    state = network(classes=9).state_dict()
    del state["0.bias"]
    state.update({f"extra.{index}": torch.zeros(1) for index in range(8)})
    torch.save(state, tmp_path / "other.pth")
    model = network()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(WeightsError) as caught:
        load_weights(model, tmp_path / "other.pth")
    message = str(caught.value)
    assert "1 missing in the file: 0.bias" in message
    assert "8 not in the network: extra.0, extra.1, extra.2, extra.3, extra.4 and 3 more" in message
    assert "2 of another shape: 3.weight (file 9x5, network 4x5), 3.bias (file 9, network 4)" in message
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("form", ["zip", "legacy", "bare pickle"])
@pytest.mark.parametrize("read", [read_state_dict, normalization_for])
def test_a_hostile_file_is_refused_and_runs_nothing(tmp_path, form, read):
    trap = tmp_path / "trap"
    path = tmp_path / "hostile.pth"
    content = {"state_dict": {"a": torch.zeros(1)}, "epoch": RunsCode(trap)}
    if form == "bare pickle":
        path.write_bytes(pickle.dumps({"epoch": RunsCode(trap)}, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(WeightsError, match=r"mkdir|not written by torch\.save"):
        read(path)
    assert not trap.exists()
    if form != "bare pickle":  # the trap itself is real
        torch.load(path, weights_only=False)
        assert trap.is_dir()


def test_a_whole_module_is_refused_with_the_way_out(tmp_path):
    torch.save(network(), tmp_path / "module.pt")
    with pytest.raises(WeightsError, match=r"Sequential.*save the network's state_dict\(\)"):
        read_state_dict(tmp_path / "module.pt")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(share=st.floats(0.001, 0.99))
def test_a_file_cut_short_is_told(tmp_path, suffix, share):
    path = tmp_path / f"cut{suffix}"
    if suffix == ".pt":
        torch.save(network().state_dict(), path)
    else:
        save_file(network().state_dict(), path)
    path.write_bytes(path.read_bytes()[: max(1, int(path.stat().st_size * share))])
    with pytest.raises(WeightsError, match="damaged"):
        read_state_dict(path)


def test_files_that_hold_no_weights(tmp_path):
    path = tmp_path / "net.pth"
    with pytest.raises(WeightsError, match=r"there is no weights file .*net\.pth"):
        read_state_dict(path)
    with pytest.raises(WeightsError, match="is a folder"):
        read_state_dict(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(WeightsError, match="is empty"):
        read_state_dict(path)
    path.write_text("<html>not found</html>")
    with pytest.raises(WeightsError, match=r"damaged or not written by torch\.save"):
        read_state_dict(path)
    torch.save([1, 2], path)
    with pytest.raises(WeightsError, match="holds a list, not a table"):
        read_state_dict(path)
    torch.save({"epoch": 3, "optimizer": {"lr": 0.1}}, path)
    with pytest.raises(WeightsError, match="found epoch, optimizer"):
        read_state_dict(path)
    torch.save({}, path)
    with pytest.raises(WeightsError, match="holds no tensors"):
        read_state_dict(path)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX file permissions")
@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_file_without_permission(tmp_path, closed):
    path = tmp_path / "folder" / "net.pth"
    path.parent.mkdir()
    torch.save({}, path)
    (path if closed == "file" else path.parent).chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read everything, so the file is read as an ordinary user
        os.seteuid(65534)
    try:
        with pytest.raises(WeightsError, match="Permission denied"):
            read_state_dict(path)
    finally:
        os.seteuid(user)
        path.parent.chmod(0o700)


def test_normalization_recorded_in_the_file(tmp_path):
    recorded = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}
    expected = Normalization((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    state = network().state_dict()
    save_file(state, tmp_path / "a.safetensors", metadata={"normalization": json.dumps(recorded)})
    torch.save({"state_dict": state, "normalization": recorded}, tmp_path / "a.pt")
    save_file(state, tmp_path / "bare.safetensors")
    torch.save(state, tmp_path / "bare-12fca82f.th")
    assert normalization_for(tmp_path / "a.safetensors") == expected
    assert normalization_for(tmp_path / "a.pt") == expected
    assert normalization_for(tmp_path / "bare.safetensors") is None
    assert normalization_for(tmp_path / "bare-12fca82f.th") is None  # the name alone proves nothing


@pytest.mark.parametrize(
    "recorded", ["{", '{"mean": [0.5]}', '{"mean": [1], "std": [0]}', '{"mean": [], "std": []}', "3"]
)
def test_normalization_that_cannot_be_used(tmp_path, recorded):
    save_file(network().state_dict(), tmp_path / "a.safetensors", metadata={"normalization": recorded})
    with pytest.raises(WeightsError, match="records a normalization"):
        normalization_for(tmp_path / "a.safetensors")


def test_normalization_of_a_known_checkpoint(tmp_path, monkeypatch):
    torch.save(network().state_dict(), tmp_path / "net.th")
    digits = hashlib.sha256((tmp_path / "net.th").read_bytes()).hexdigest()[:8]
    known = Normalization((0.5,), (0.25,))
    monkeypatch.setitem(weights.KNOWN_CHECKPOINTS, digits, known)
    (tmp_path / "net.th").rename(tmp_path / f"net-{digits}.th")
    assert normalization_for(tmp_path / f"net-{digits}.th") == known


@pytest.mark.skipif(not SHARED_WEIGHTS.is_dir(), reason="no ../shared/weights here")
@pytest.mark.parametrize("file", ["resnet20-12fca82f.th", "resnet56-4bfd9763.th"])
def test_normalization_of_the_public_resnets(file):
    expected = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert normalization_for(SHARED_WEIGHTS / file) == expected
    assert normalization_for(SHARED_WEIGHTS / "densenet100-cifar10.pth.tar") is None
