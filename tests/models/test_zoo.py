"""Every network of the zoo: shapes, a training step, FLOPs, parameter names, copies."""

import copy
import fnmatch
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from deeppruning.models import create_model, describe_model, list_models
from deeppruning.models.layers import FeatureMap, draw_weights
from deeppruning.models.resnet import PadShortcut
from deeppruning.training.weights import load_weights, read_state_dict

ALL = list_models()
# Deeper ones of families that shallower ones stand for.
DEEP = ("resnet44", "resnet56", "resnet110", "densenet100", "vgg19")
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name in DEEP)) for name in ALL]
SHARED_WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"
needs_weights = pytest.mark.skipif(not SHARED_WEIGHTS.is_dir(), reason="no ../shared/weights here")

PAPER_FLOPS = {
    ("vgg16", ""): "3.137e+08",
    ("vgg19", ""): "3.987e+08",
    ("resnet56", "pad"): "1.255e+08",
    ("resnet56", "conv"): "1.257e+08",
    ("resnet110", "pad"): "2.529e+08",
    ("resnet110", "conv"): "2.531e+08",
    ("densenet50", ""): "8.85e+07",
    ("densenet100", ""): "2.879e+08",
}


@pytest.fixture(autouse=True)
def seeded(one_thread):
    torch.manual_seed(0)


def test_the_zoo_holds_the_promised_networks():
    promised = "vgg16 vgg19 resnet20 resnet32 resnet44 resnet56 resnet110 densenet50 densenet100"
    assert {*promised.split(), "mobilenet_v2", "squeezenet", "efficientnet_b0", "googlenet"} <= set(ALL)
    assert ALL.index("resnet20") < ALL.index("resnet110")


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize(("classes", "channels", "side"), [(10, 3, 32), (7, 1, 8)])
def test_one_logit_a_class(name, classes, channels, side):
    model = create_model(name, num_classes=classes, in_channels=channels, image_size=side).eval()
    with torch.no_grad():
        logits = model(torch.randn(2, channels, side, side))
    assert logits.shape == (2, classes)
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize("name", EACH)
def test_a_training_step_reaches_every_parameter(name):
    model = create_model(name, num_classes=4, image_size=8).train()
    loss = nn.functional.cross_entropy(model(torch.randn(6, 3, 8, 8)), torch.tensor([0, 1, 2, 3, 0, 1]))
    loss.backward()
    assert 0 < loss.item() < 20
    without = [key for key, value in model.named_parameters() if value.grad is None]
    assert without == []
    assert all(bool(value.grad.isfinite().all()) for value in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_copies_answer_alike(name):
    model = create_model(name, image_size=8).eval()
    images = torch.randn(2, 3, 8, 8)
    twin = copy.deepcopy(model)
    fresh = create_model(name, image_size=8).eval()
    fresh.load_state_dict(model.state_dict())
    unpickled = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        expected = model(images)
        for other in (twin, fresh, unpickled):
            assert torch.equal(other(images), expected)


@pytest.mark.parametrize("name", EACH)
def test_parameter_names_and_shapes_do_not_depend_on_the_image_size(name):
    small, large = (create_model(name, image_size=side).state_dict() for side in (8, 32))
    assert {key: value.shape for key, value in small.items()} == {
        key: value.shape for key, value in large.items()
    }


@pytest.mark.parametrize(("name", "shortcut"), PAPER_FLOPS)
def test_multiply_adds_agree_with_the_paper(name, shortcut):
    options = {"shortcut": shortcut} if shortcut else {}
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        create_model(name, **options).eval()(torch.zeros(1, 3, 32, 32))
    expected = PAPER_FLOPS[name, shortcut]
    digits = len(expected.split("e")[0]) - 2
    assert f"{counter.get_total_flops() // 2:.{digits}e}" == expected
    assert describe_model(name, **options).flops == counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("name", "depth"),
    [("vgg16", 16), ("resnet20", 20), ("resnet56", 56), ("densenet100", 100), ("googlenet", 22)],
)
def test_depth_is_the_longest_path(name, depth):
    assert describe_model(name).depth == depth


def test_describing_a_network_leaves_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    summary = describe_model("resnet20")
    assert torch.equal(torch.rand(4), expected)
    assert summary.params == sum(value.numel() for value in create_model("resnet20").parameters()) == 269722


@needs_weights
@pytest.mark.parametrize(
    ("file", "name", "classes"),
    [
        ("resnet20-12fca82f.th", "resnet20", 10),
        ("resnet56-4bfd9763.th", "resnet56", 10),
        ("densenet100-cifar10.pth.tar", "densenet100", 10),
        ("densenet100-cifar100.pth.tar", "densenet100", 100),
    ],
)
def test_public_checkpoints_load_as_they_are(file, name, classes):
    model = create_model(name, num_classes=classes)
    load_weights(model, SHARED_WEIGHTS / file)
    loaded = model.state_dict()
    names = read_state_dict(SHARED_WEIGHTS / file).items()
    stored = {name.removeprefix("module."): tensor for name, tensor in names}
    assert all(torch.equal(loaded[key], value) for key, value in stored.items())
    absent = [key for key in loaded if key not in stored and "num_batches_tracked" not in key]
    assert absent == []


def test_pad_shortcut_keeps_every_second_pixel_between_zero_channels():
    images = torch.randn(2, 4, 6, 6)
    out = PadShortcut(4, 8, 2)(images)
    assert out.shape == (2, 8, 3, 3)
    assert torch.equal(out[:, 2:6], images[:, :, ::2, ::2])
    assert out[:, :2].abs().sum() == out[:, 6:].abs().sum() == 0


def test_shortcuts_have_the_public_names():
    padded = create_model("resnet20")
    assert isinstance(padded.layer2[0].shortcut, PadShortcut)
    assert list(padded.layer2[0].shortcut.parameters()) == []
    convolved = create_model("resnet20", shortcut="conv").state_dict()
    assert convolved["layer2.0.shortcut.0.weight"].shape == (32, 16, 1, 1)
    assert convolved["layer3.0.shortcut.1.weight"].shape == (64,)


@pytest.mark.parametrize("name", EACH)
def test_paper_excludes_name_real_convolutions(name):
    model = create_model(name)
    convolutions = [key for key, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    excluded = {
        key
        for key in convolutions
        for rule in getattr(model, "paper_excludes", ())
        if fnmatch.fnmatch(key, rule)
    }
    expected = {"conv1", "trans1.conv1", "trans2.conv1"} if name.startswith("densenet") else set()
    assert excluded == expected


def test_drawing_weights_follows_the_fan_in():
    depthwise = nn.Conv2d(64, 64, 3, groups=64, bias=False)
    model = nn.Sequential(depthwise, nn.BatchNorm2d(64), nn.Linear(1000, 50))
    model[1].weight.data.fill_(3)
    draw_weights(model)
    assert model[0].weight.std().item() == pytest.approx((2 / 9) ** 0.5, rel=0.15)
    assert model[2].weight.std().item() == pytest.approx((1 / 3000) ** 0.5, rel=0.05)
    assert torch.equal(model[1].weight, torch.ones(64))


def test_a_map_of_one_pixel_is_not_halved():
    side = FeatureMap(5)
    assert [side.stride() for _ in range(5)] == [2, 2, 2, 1, 1]
    assert isinstance(side.halving(nn.MaxPool2d(2)), nn.Identity)
