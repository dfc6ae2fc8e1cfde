"""Names, options and factories: what a user may write for a model, and the errors for what they may not."""

import subprocess
import sys

import cloudpickle
import pytest
import torch
from torch import nn

from deeppruning.errors import InputError
from deeppruning.models import create_model, list_models, register_model, registry, resolve_model

TASK = {"num_classes": 5, "in_channels": 1, "image_size": 8}

NETWORK_FILE = """
from __future__ import annotations
from dataclasses import dataclass
from torch import nn
from blocks import WIDTH

@dataclass
class Sizes:
    width: int = WIDTH

class Net(nn.Sequential):
    def __init__(self, in_channels, num_classes=2):
        super().__init__(nn.Conv2d(in_channels, Sizes().width, 3), nn.Flatten(), nn.LazyLinear(num_classes))

def make(num_classes, width=4, **rest):
    return nn.Linear(width, num_classes)

def plain():
    return nn.Linear(3, 2)

def broken(num_classes):
    raise RuntimeError("out of luck")

def number():
    return 7

ready = nn.Linear(1, 1)
"""


@pytest.fixture
def network_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "blocks.py").write_text("WIDTH = 6\n")
    path = tmp_path / "net.py"
    path.write_text(NETWORK_FILE)
    yield path
    sys.modules.pop("blocks", None)


def test_unknown_name_offers_the_nearest():
    with pytest.raises(InputError, match=r"unknown model 'resnet57'; did you mean resnet56") as caught:
        create_model("resnet57")
    assert "vgg16" in str(caught.value)


def test_unknown_option_names_the_allowed_ones():
    with pytest.raises(InputError, match=r"option of resnet20 'shortcuts'; did you mean shortcut\?"):
        create_model("resnet20", shortcuts="pad")
    with pytest.raises(InputError, match="densenet50 takes no options, got 'shortcut'"):
        create_model("densenet50", shortcut="pad")
    with pytest.raises(InputError, match=r"unknown shortcut 'padd'; did you mean pad\?"):
        create_model("resnet20", shortcut="padd")
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 2"):
        create_model("vgg16", dropout=2)


@pytest.mark.parametrize(
    ("argument", "value", "least"),
    [("num_classes", 0, 1), ("in_channels", -1, 1), ("image_size", 7, 8), ("num_classes", True, 1)],
)
def test_impossible_tasks_are_refused(argument, value, least):
    with pytest.raises(
        InputError, match=f"{argument} must be a whole number of at least {least}, got {value}"
    ):
        create_model("resnet20", **{argument: value})


def test_a_registered_builder_is_known_by_its_name(monkeypatch):
    monkeypatch.setattr(registry, "_BUILDERS", registry._BUILDERS.copy())

    @register_model
    def tiny(num_classes, width=3):
        """A tiny one"""
        return nn.Linear(width, num_classes)

    assert "tiny" in list_models()
    assert create_model("tiny", num_classes=4, width=5).weight.shape == (4, 5)
    assert registry.about_model("tiny") == "A tiny one"
    with pytest.raises(InputError, match="'tiny' is registered already"):
        register_model(tiny)


def test_zoo_names_resolve():
    assert resolve_model("resnet20", **TASK, shortcut="conv").conv1.weight.shape == (16, 1, 3, 3)


def test_factory_in_a_file_gets_the_arguments_it_declares(network_file):
    net = resolve_model(f"{network_file}:Net", **TASK)
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 5)
    assert net[0].out_channels == 6
    assert resolve_model(f"{network_file}:make", **TASK, width=9).weight.shape == (5, 9)
    assert resolve_model(f"{network_file}:plain", **TASK).weight.shape == (2, 3)


@pytest.mark.slow
def test_a_network_from_a_file_travels_to_another_process(network_file, tmp_path):
    net = resolve_model(f"{network_file}:Net", **TASK)
    images = torch.ones(1, 1, 8, 8)
    (tmp_path / "net.pickle").write_bytes(cloudpickle.dumps((net, net(images).tolist())))
    script = (
        "import pickle, sys, torch; net, expected = pickle.load(open(sys.argv[1], 'rb'));"
        "assert net(torch.ones(1, 1, 8, 8)).tolist() == expected"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "net.pickle")]
    assert subprocess.run(arguments, cwd=tmp_path.parent, check=False).returncode == 0


def test_factory_in_a_module_of_the_current_folder(network_file, monkeypatch):
    package = network_file.parent / "own_networks_package"
    package.mkdir()
    (package / "nets.py").write_text("from torch import nn\ndef make(in_channels):\n    return nn.ReLU()\n")
    monkeypatch.chdir(network_file.parent)
    assert isinstance(resolve_model("own_networks_package.nets:make", **TASK), nn.ReLU)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (":mak", r"function in .*net\.py 'mak'; did you mean make\? Known: Net, Sizes, broken, make"),
        (":broken", r"broken raised RuntimeError: out of luck \(.*net\.py, line \d+\)"),
        (":number", r"must return a torch.nn.Module, it returned int"),
        (":ready", r"ready is of type 'Linear', not a factory"),
        ("", r"does not say which function makes the network; write .*net\.py:factory"),
        (":", r"is not of a known form"),
    ],
)
def test_errors_of_factories(network_file, factory, message):
    with pytest.raises(InputError, match=message):
        resolve_model(f"{network_file}{factory}", **TASK)


def test_options_a_factory_does_not_take(network_file):
    with pytest.raises(InputError, match=r"plain takes no options, got 'width'"):
        resolve_model(f"{network_file}:plain", **TASK, width=3)


def test_errors_of_files_and_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"there is no file missing\.py"):
        resolve_model("missing.py:make", **TASK)
    with pytest.raises(InputError, match=r"there is no module 'no_such_package_here' to import"):
        resolve_model("no_such_package_here.nets:make", **TASK)
    (tmp_path / "bad.py").write_text("import no_such_library_here\n")
    with pytest.raises(InputError, match=r"bad\.py cannot be loaded.*ModuleNotFoundError.*line 1\)"):
        resolve_model("bad.py:make", **TASK)
    with pytest.raises(InputError, match=r"module bad cannot be imported.*no_such_library_here"):
        resolve_model("bad:make", **TASK)


def test_a_class_without_a_constructor_is_called_without_arguments(tmp_path):
    (tmp_path / "bare.py").write_text("from torch import nn\n\nclass Bare(nn.Module):\n    pass\n")
    made = resolve_model(f"{tmp_path / 'bare.py'}:Bare", num_classes=10, in_channels=1, image_size=8)
    assert type(made).__name__ == "Bare"
