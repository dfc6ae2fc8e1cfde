"""How near a search comes to its target: FLOPs, parameters, size and latency, for each family of the zoo.

    python benchmarks/targets.py [--families resnet20 vgg16 ...] [--limits flops=40% ...] [--round-to 1]

Each network is trained briefly on the embedded digits: of one that is only drawn, an empty rest is as good as
any. Then every limit is asked for in a short guided search (15 candidates, no fine-tuning). The figure
is what the target has over what was asked: at most 100 %, and near it where the best is not also far cheaper.
A latency is asked for on images of 16 x 16, where arithmetic takes more of the time than calls do, and is
measured again here.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import deeppruning as dp
from deeppruning.config import TrainConfig
from deeppruning.data.images import ImageSet
from deeppruning.data.registry import load_data
from deeppruning.data.sample import balanced_sample
from deeppruning.latency import Conditions
from deeppruning.latency.plan import measure_networks
from deeppruning.limits import Limits
from deeppruning.models import create_model
from deeppruning.training.loop import fit

FAMILIES = ("resnet20", "vgg16", "densenet50", "mobilenet_v2", "googlenet", "efficientnet_b0", "squeezenet")
LIMITS = ("flops=40%", "params=40%", "size=40%", "latency=60%")
SMALL, LARGE = 8, 16  # sides of the images
WINDOWS = 6  # of half a second


def digits(side: int, count: int | None = None) -> ImageSet:
    """Digits of this size, a class-balanced part of them."""
    data = load_data("digits").train
    times = side // SMALL
    large = data.images.repeat_interleave(times, 2).repeat_interleave(times, 3)
    data = replace(data, images=large)
    return data if count is None else balanced_sample(data, count, 0)


@lru_cache(maxsize=1)
def trained(family: str, side: int, epochs: int) -> nn.Module:
    """A network of the family that tells digits apart."""
    torch.manual_seed(0)
    model = create_model(family, num_classes=10, in_channels=1, image_size=side)
    train = digits(side, None if side == SMALL else 600)
    normed = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    if not normed:  # squeezenet learns nothing at the higher rate, and slowly at a lower one
        epochs *= 4
    options = TrainConfig(
        epochs=epochs, lr=0.05 if normed else 0.02, schedule="onecycle", batch_size=64, crop=0, flip=False
    )
    fit(model, train, options)
    return model.eval()


def seconds_of(model: nn.Module) -> float:
    """Its latency in PyTorch, one input and one thread: the fastest of several runs."""
    example = torch.zeros(1, 1, LARGE, LARGE)
    return min(measure_networks([copy.deepcopy(model)], example, Conditions())[0] for _ in range(WINDOWS))


def asked(limit: str, model: nn.Module) -> str:
    """The limit; a share of the latency as the milliseconds that it is on this machine."""
    name, _, value = limit.partition("=")
    if name != "latency" or not value.endswith("%"):
        return limit
    return f"latency={1000 * seconds_of(model) * float(value[:-1]) / 100:.3f}ms"


def measure(model: nn.Module, limit: str, options: argparse.Namespace) -> str:
    """What the target has over what was asked for, as a cell of the table."""
    names = ("offspring", "generations", "sample", "evaluation", "round_to")
    shape: dict[str, Any] = {name: getattr(options, name) for name in names}
    side = LARGE if limit.startswith("latency") else SMALL
    wanted = asked(limit, model)
    with tempfile.TemporaryDirectory() as folder:
        result = dp.prune(
            model,
            digits(side),
            run_dir=Path(folder) / "run",
            target=wanted,
            search=dp.SearchConfig(**shape),
            finetune=dp.FinetuneConfig(epochs=0),
            workers=1,
        )
        if "target" in result.failed:
            return result.failed["target"]
        limits, target = Limits.of(wanted), result.target
        if limits.latency is not None:
            most = limits.latency
            has = seconds_of(target.model)
        else:
            graph = result.meter.context.graph
            ((name, most),) = limits.most(result.meter.whole).items()
            has = getattr(graph, name)(target.genome)
        return f"{100 * has / most:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--limits", nargs="+", default=LIMITS)
    parser.add_argument("--offspring", type=int, default=4)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--evaluation", default="recalibrate", help="refit is ours and takes longer")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--round-to", type=int, help="1 for any width [multiples that are fast here]")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"| network | {' | '.join(options.limits)} | CPU seconds |")
    print(f"|---|{'---|' * (len(options.limits) + 1)}")
    for family in options.families:
        start = time.process_time()
        cells = []
        for limit in options.limits:
            side = LARGE if limit.startswith("latency") else SMALL
            cells.append(measure(trained(family, side, options.epochs), limit, options))
        print(f"| {family} | {' | '.join(cells)} | {time.process_time() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
