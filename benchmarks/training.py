"""Images per second of the package's training loop against the textbook one, and share of matmul peak.

Both train the same network from the same weights on the same random CIFAR-shaped images, in turns (one
epoch each, repeatedly), so that a busy machine disturbs both alike. Textbook: a DataLoader over a data
set that crops, flips and normalises image by image, contiguous tensors, plain SGD.

With --teacher: thin networks of 84, 40 and 20 % of the FLOPs, each trained for an epoch as fine-tuning does
it, the original asked about every batch, and told what it has answered before; again in turns.

Example: python benchmarks/training.py --model resnet20 --model vgg16 --steps 10 --rounds 3
         python benchmarks/training.py --teacher --model resnet56 --threads 1
"""

import argparse
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from deeppruning.config import FinetuneConfig, TrainConfig
from deeppruning.data.images import ImageSet, Normalization
from deeppruning.graph import ChannelGraph
from deeppruning.models import create_model
from deeppruning.models.registry import describe_model
from deeppruning.searching.importance import Evidence, genome_by
from deeppruning.system.allocator import keep_freed_memory
from deeppruning.training.distillation import CachedTeacher
from deeppruning.training.loop import fit

NORMALIZATION = Normalization((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CROP = 4
SHARES = (0.84, 0.4, 0.2)  # of the FLOPs: about those of heavy, knee and light
BACKWARD_AND_FORWARD = 3  # a backward pass computes gradients of inputs and of weights, as much work each


class Textbook(Dataset[tuple[Tensor, int]]):
    """One image at a time: pad, crop, flip, scale, normalise."""

    def __init__(self, data: ImageSet, crop: int) -> None:
        self.data, self.crop = data, crop
        self.mean = torch.tensor(NORMALIZATION.mean).view(-1, 1, 1)
        self.std = torch.tensor(NORMALIZATION.std).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = nn.functional.pad(self.data.images[index], [self.crop] * 4)
        top, left = (int(torch.randint(2 * self.crop + 1, ())) for _ in range(2))
        image = image[:, top : top + 32, left : left + 32]
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        return (image.float() / 255 - self.mean) / self.std, int(self.data.labels[index])


def textbook_epoch(model: nn.Module, data: ImageSet, config: TrainConfig) -> None:
    """The loop every tutorial shows."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config.lr, momentum=0.9, nesterov=True, weight_decay=config.weight_decay
    )
    criterion = nn.CrossEntropyLoss()
    model.train()
    for images, labels in DataLoader(Textbook(data, CROP), config.batch_size, shuffle=True):
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()


def seconds(work: Callable[[], object]) -> float:
    """The time one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def matmul_peak(rounds: int) -> float:
    """Multiply-adds a second of the best of several large matrix products."""
    size = 2048
    left, right, out = (torch.rand(size, size) for _ in range(3))
    torch.mm(left, right, out=out)
    return size**3 / min(seconds(lambda: torch.mm(left, right, out=out)) for _ in range(3 * rounds))


def noise(count: int) -> ImageSet:
    """Images of noise in the shape of CIFAR-10."""
    return ImageSet(
        torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8),
        torch.arange(count) % 10,
        tuple(map(str, range(10))),
        NORMALIZATION,
    )


def compare(name: str, steps: int, rounds: int, batch_size: int) -> tuple[float, float, float, float]:
    """Median images/s of the textbook and of the package, the median of their ratio, share of peak."""
    count = steps * batch_size
    data = noise(count)
    config = TrainConfig(epochs=1, lr=0.01, batch_size=batch_size, schedule="constant", crop=CROP, flip=True)
    ours = create_model(name, num_classes=10)
    theirs = deepcopy(ours)
    warm_up = data.subset(torch.arange(min(count, 2 * batch_size)))
    fit(ours, warm_up, config)
    textbook_epoch(theirs, warm_up, config)
    pairs, shares = [], []
    work = BACKWARD_AND_FORWARD * describe_model(name).flops
    for _ in range(rounds):
        pair = (
            count / seconds(lambda: textbook_epoch(theirs, data, config)),
            count / seconds(lambda: fit(ours, data, config)),
        )
        pairs.append(pair)
        # The peak is taken beside each round: on a shared machine it changes from minute to minute.
        shares.append(pair[1] * work / matmul_peak(1))
    textbook, package = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(second / first for first, second in pairs)
    return textbook, package, ratio, statistics.median(shares)


def compare_teaching(name: str, steps: int, rounds: int, batch_size: int) -> None:
    """Print images/s of networks whose teacher is asked, and of those that are told; and of all three."""
    data, model = noise(steps * batch_size), create_model(name, num_classes=10).eval()
    options = FinetuneConfig(epochs=1, batch_size=batch_size, crop=CROP, flip=True)
    graph = ChannelGraph(model, torch.zeros(1, 3, 32, 32), round_to=None)
    whole = graph.flops(graph.full_genome())
    spent = {share: ([], []) for share in SHARES}  # asked, told
    with TemporaryDirectory() as folder:
        for share, (asked, told) in spent.items():
            genome = genome_by("l1", Evidence(graph, model), flops=share * whole)
            thin = graph.prune(genome)
            for place in range(rounds + 1):
                answers = Path(folder) / f"{share}-{place}"
                for times in (asked, told):
                    teaching = CachedTeacher(model, answers)
                    times.append(
                        seconds(
                            lambda thin=thin, teaching=teaching: fit(
                                thin, data, options, teacher=teaching, distill=options.distill
                            )
                        )
                    )
                    teaching.write()
    totals = [0.0, 0.0, 0.0]  # all asked, the first asked and the others told, all told
    for place, (share, columns) in enumerate(spent.items()):
        asked, told = (statistics.median(times[1:]) for times in columns)  # the first round warms up
        totals = [totals[0] + asked, totals[1] + (told if place else asked), totals[2] + told]
        speeds = f"{len(data) / asked:10.0f} {len(data) / told:10.0f} {asked / told:6.2f}"
        print(f"{name} {share:.0%} {speeds}", flush=True)
    print(f"{name} all three, one of them asking: {totals[1] / totals[0]:.2f} of the time")


def main() -> None:
    """Print one row a network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", help="network of the zoo; may be repeated")
    parser.add_argument("--steps", type=int, default=8, help="batches an epoch")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each loop, in turns")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-allocator", action="store_true", help="leave glibc's allocator as it is")
    parser.add_argument("--teacher", action="store_true", help="thin networks with a teacher, asked or told")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    held = not options.no_allocator and keep_freed_memory()
    print(
        f"torch {torch.__version__}, {options.threads} threads, freed memory {'kept' if held else 'returned'}"
    )
    if options.teacher:
        print("network, FLOPs: images/s with the teacher asked, with its answers known, ratio")
        for name in options.model or ["resnet20", "resnet56"]:
            compare_teaching(name, options.steps, options.rounds, options.batch_size)
        return
    print(f"{'network':12} {'textbook':>10} {'package':>10} {'ratio':>6} {'of peak':>8}   images/s")
    for name in options.model or ["resnet20", "resnet56", "vgg16"]:
        row = compare(name, options.steps, options.rounds, options.batch_size)
        print(f"{name:12} {row[0]:10.0f} {row[1]:10.0f} {row[2]:6.2f} {row[3]:8.1%}", flush=True)


if __name__ == "__main__":
    main()
