"""Peak memory of training and pruning on a folder of pictures, against the number of pictures.

For each number a folder of so many JPEG files is made; a process of its own then trains a small network on
it for an epoch, searches for thin ones, and tests them. Nothing of that keeps the pictures. The C library is
told to give large blocks back when they are freed: by itself it keeps some, now more and now fewer.

Example: python benchmarks/data_memory.py --pictures 20000 --pictures 100000
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 64  # of the pictures, in pixels
SIZE = 96  # of the images that are made of them; 20,000 of these would be kept no more
CONTENTS = 500  # different pictures; each file has bytes of its own all the same
CLASSES = 10
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
TESTED = 20  # one picture of so many is a test picture


def write_folder(folder: Path, pictures: int, classes: int = CLASSES, side: int = SIDE) -> None:
    """JPEG files of noise in class folders, each followed by its own number, which readers pass over."""
    noise = np.random.default_rng(0)
    encoded = []
    for _ in range(CONTENTS):
        file = io.BytesIO()
        coarse = Image.fromarray(noise.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG")
        encoded.append(file.getvalue())
    for part in ("train", "test"):
        for label in range(classes):
            (folder / part / str(label)).mkdir(parents=True)
    for number in range(pictures):
        part = "test" if number // classes % TESTED == 0 else "train"
        content = encoded[number % CONTENTS] + number.to_bytes(4, "big")
        (folder / part / str(number % classes) / f"{number:07}.jpg").write_bytes(content)


def measure(folder: Path, run: Path, readers: int) -> dict[str, float]:
    """Train, search and test in this process; seconds and peak megabytes, of its largest child as well."""
    import torch
    from torch import nn

    import deeppruning as dp
    from deeppruning.data.registry import load_data
    from deeppruning.training.loop import fit

    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.perf_counter()
    splits = load_data(str(folder), image_size=SIZE, loading_workers=readers)
    loaded = time.perf_counter() - start
    before = _peak(resource.RUSAGE_SELF)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    fit(model, splits.train, dp.TrainConfig(epochs=1, lr=0.01), test=splits.test)
    dp.prune(
        model,
        splits.train,
        splits.test,
        run_dir=run,
        search=dp.SearchConfig(offspring=4, generations=1, sample=500),
        finetune=dp.FinetuneConfig(epochs=0),
        workers=1,
        report=False,
    )
    return {
        "seconds to load": loaded,
        "seconds": time.perf_counter() - start,
        "MB once loaded": before,
        "MB": _peak(resource.RUSAGE_SELF),
        "MB of a reader": _peak(resource.RUSAGE_CHILDREN),
    }


def _peak(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pictures", type=int, action="append", help="may be repeated [20000, 100000]")
    parser.add_argument("--readers", type=int, default=1, help="processes that decode [1]")
    parser.add_argument("--measured", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        run = options.measured.with_name("run")
        print(json.dumps(measure(options.measured, run, options.readers)))
        return
    print("| pictures | decoded they are | peak of the process | peak of a reader | loaded in | all in |")
    print("|---|---|---|---|---|---|")
    for pictures in options.pictures or [20_000, 100_000]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "photos"
            write_folder(folder, pictures)
            command = [sys.executable, __file__, "--measured", str(folder), "--readers", str(options.readers)]
            told = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=ALLOCATOR | os.environ
            )
        found = json.loads(told.stdout.splitlines()[-1])
        decoded = pictures * 3 * SIZE * SIZE / 2**20
        print(
            f"| {pictures:,} | {decoded:,.0f} MB | {found['MB']:.0f} MB | {found['MB of a reader']:.0f} MB | "
            f"{found['seconds to load']:.0f} s | {found['seconds']:.0f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
