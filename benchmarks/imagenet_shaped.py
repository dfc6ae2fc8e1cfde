"""ResNet50 at 224 pixels and 1,000 classes from a folder of JPEG files to an ONNX file: seconds and memory.

A dry run: weights are untrained and pictures are noise, so it says nothing of errors. The guided search
begins with a scan, a refit for each of some 140 single changes; `--strategy paper` does without.

Example: python benchmarks/imagenet_shaped.py --strategy paper --pictures 3000 --sample 40 --candidates 5
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_memory import ALLOCATOR, write_folder

CLASSES, SIZE, RESIZED = 1000, 224, 256
FIRST = 3  # candidates before the first generation of a search


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A row of the table: how long it took, and the most memory so far, in this process and in a reader."""
    start, used = time.perf_counter(), time.process_time()
    yield
    peaks = [
        resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    row = f"{time.perf_counter() - start:.0f} s | {time.process_time() - used:.0f} s"
    print(f"| {name} | {row} | {peaks[0]:,.0f} MB | {peaks[1]:,.0f} MB |", flush=True)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Every stage in this process, one thread; readers are processes of their own."""
    with stage("import"):
        import torch
        from resnet50 import ResNet50

        import deeppruning as dp
        from deeppruning.data.registry import load_data
        from deeppruning.exporting import export_onnx

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with stage(f"open a folder of {options.pictures:,} pictures"):
        photos = str(folder / "photos")
        data = load_data(photos, image_size=SIZE, image_resize=RESIZED, loading_workers=options.readers)
    model = ResNet50(CLASSES).eval()
    search = dp.SearchConfig(
        strategy=options.strategy,
        evaluation="refit",
        mutation=0.3,  # of the paper's search: leaves about half of the FLOPs
        offspring=options.candidates - FIRST,
        generations=1,
        sample=options.sample,
    )
    with stage(f"search: graph, {options.candidates} candidates, {options.sample} pictures"):
        front = dp.search(model, data.train, search=search, workers=1, progress=False)
    light = front.light
    with stage(f"refit of the network at {light.flops / front.original.flops:.1%} of the FLOPs"):
        thin = light.model
    with stage("save, and load again"):
        thin = dp.load(front.save(thin, folder / "thin.safetensors"), ResNet50(CLASSES))
    with stage("ONNX file, checked by running it"):
        export_onnx(thin, torch.zeros(1, 3, SIZE, SIZE), folder / "thin.onnx")
    sizes = [(folder / name).stat().st_size / 2**20 for name in ("thin.safetensors", "thin.onnx")]
    print(f"\nfiles: {sizes[0]:.0f} MB of weights, {sizes[1]:.0f} MB of ONNX")


def main() -> None:
    """Make the folder, then measure in a process that has done nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pictures", type=int, default=3000, help="of all classes together [3000]")
    parser.add_argument("--strategy", choices=("guided", "paper"), default="guided", help="[guided]")
    parser.add_argument("--sample", type=int, default=40, help="pictures that the search sees [40]")
    parser.add_argument("--candidates", type=int, default=5, help=f"of the search, more than {FIRST} [5]")
    parser.add_argument("--readers", type=int, default=1, help="processes that decode [1]")
    parser.add_argument("--measured", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        measure(options.measured, options)
        return
    with tempfile.TemporaryDirectory() as place:
        write_folder(Path(place) / "photos", options.pictures, CLASSES, SIZE + 56)
        print(
            "| stage | seconds | of the processor | peak so far | of a reader |\n|---|---|---|---|---|",
            flush=True,
        )
        os.environ.update(ALLOCATOR | dict(os.environ))
        os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, *sys.argv[1:], "--measured", place])


if __name__ == "__main__":
    main()
