"""Prune a YOLO network by unlabelled pictures, train it on with Ultralytics' trainer, save it as a .pt file.

    python examples/yolo.py          # a trial: generated pictures, a network trained on them briefly
    python examples/yolo.py --weights yolov8n.pt --pictures photos/ --data coco.yaml --size 640 --flops 0.6

Ultralytics' own loader unpickles .pt files, which can run code: open only those that you trust, or set
ULTRALYTICS_SAFE_LOAD=1. DeepPruningES itself never unpickles; this example leaves the loading to Ultralytics.
"""

import argparse
import copy
import shutil
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from ultralytics import YOLO
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.nn.modules import C2f, Detect
from ultralytics.utils.metrics import box_iou

import deeppruning as dp

SURE, SAME = 0.25, 0.5  # score of a box that counts, overlap of equal boxes
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
COLOURS = ((60, 60, 230), (230, 160, 60))  # of the two classes of generated pictures


class ThinTrainer(DetectionTrainer):
    """Ultralytics' trainer, on the network of the checkpoint as it is.

    Its own `get_model` builds a network of full width from the YAML and copies only weights that still fit.
    """

    def get_model(self, cfg: Any = None, weights: nn.Module | None = None, verbose: bool = True) -> nn.Module:
        """The network that `YOLO(path)` read."""
        if weights is None:
            raise ValueError('nothing to train on: call YOLO("thin.pt").train(trainer=ThinTrainer, ...)')
        classes = weights.model[-1].nc
        if classes != self.data["nc"]:
            raise ValueError(f"the network has {classes} classes, the data set {self.data['nc']}")
        return weights


def generate(folder: Path, parts: dict[str, int], size: int, seed: int) -> Path:
    """Write a data set in Ultralytics' form, upright and lying rectangles on noise; the path of its YAML."""
    random = np.random.default_rng(seed)
    for part, count in parts.items():
        images, labels = folder / "images" / part, folder / "labels" / part
        images.mkdir(parents=True, exist_ok=True)
        labels.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture, rows = random.integers(0, 90, (size, size, 3)).astype(np.uint8), []
            for left in (0, size // 2):  # one in each half, so that they do not hide each other
                kind = int(random.integers(2))
                short, long = random.integers(size // 6, size // 4), random.integers(size // 3, size // 2)
                width, height = (short, long) if kind == 0 else (long, short)
                x = left + int(random.integers(0, size // 2 - width + 1))
                y = int(random.integers(0, size - height + 1))
                picture[y : y + height, x : x + width] = COLOURS[kind]
                box = np.array([x + width / 2, y + height / 2, width, height]) / size
                rows.append(f"{kind} " + " ".join(f"{value:.6f}" for value in box))
            cv2.imwrite(str(images / f"{number:04}.png"), picture)
            (labels / f"{number:04}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    description = f"path: {folder.resolve()}\ntrain: images/train\nval: images/val\nnames: [upright, lying]\n"
    path = folder / "data.yaml"
    path.write_text(description, encoding="utf-8")
    return path


def read_pictures(folder: Path, size: int, most: int) -> list[np.ndarray[Any, Any]]:
    """Pictures of a folder as Ultralytics takes them (height, width, BGR), each made square."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)[:most]
    if not paths:
        raise SystemExit(f"no pictures ({', '.join(sorted(SUFFIXES))}) in {folder}")
    return [cv2.resize(cv2.imread(str(path)), (size, size)) for path in paths]


def as_inputs(pictures: list[np.ndarray[Any, Any]]) -> Tensor:
    """What the network itself gets of them: (pictures, RGB, height, width), 0 to 1."""
    stacked = np.stack(pictures)[..., ::-1].transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(stacked)).float() / 255


class DecodedOnly(Detect):
    """Ultralytics' head without the feature maps that it returns for the loss, which needs only their shapes.

    As outputs of the network, the maps would have to keep all of their channels.
    """

    export = True  # decoded boxes alone, as in exported files
    dynamic = True  # no cache by the number of channels: a cut would make the code take another way

    def forward(self, x: list[Tensor]) -> Any:
        """Decoded boxes; in training, what they are decoded from."""
        found = super().forward(x)
        return {name: found[name] for name in ("boxes", "scores")} if self.training else found


def search(
    model: nn.Module, inputs: Tensor, flops: float, options: dp.SearchConfig
) -> tuple[nn.Module, float]:
    """The best network within a share of the FLOPs, refitted in closed form, and its share."""
    head = model.eval().float().model[-1]
    if type(head) is not Detect or head.end2end:
        raise SystemExit(f"the head {type(head).__name__} is not that of YOLOv8 or YOLO11 for detection")
    head.__class__ = DecodedOnly
    try:
        front = dp.search(model, inputs, search=options, workers=1)
        found = front.at(flops=flops)
        thin = found.model
    finally:
        head.__class__ = Detect
    thin.model[-1].__class__ = Detect
    head.shape = thin.model[-1].shape = None  # anchors of the search, perhaps in another precision
    for module in thin.modules():
        if isinstance(module, C2f):  # Ultralytics' export splits by this number, its forward by halves
            module.c = module.cv1.conv.out_channels // 2
    return thin, found.flops / front.original.flops


def boxes_that_stay(
    before: YOLO, after: YOLO, pictures: list[np.ndarray[Any, Any]], size: int
) -> tuple[float, int]:
    """The share of the first network's boxes that the second finds, of the same class, and their number."""
    stays: list[bool] = []
    for picture in pictures:
        old, new = (
            yolo.predict(picture, imgsz=size, conf=SURE, device="cpu", verbose=False)[0].boxes
            for yolo in (before, after)
        )
        equal = (box_iou(old.xyxy, new.xyxy) > SAME) & (old.cls[:, None] == new.cls[None])
        stays += equal.any(1).tolist()
    return (float(np.mean(stays)) if stays else float("nan")), len(stays)


def milliseconds(models: list[nn.Module], size: int, turns: int = 20) -> list[float]:
    """The fastest of several runs on one picture; in turns, so that other work disturbs all alike."""
    picture = torch.zeros(1, 3, size, size)
    times = np.full((turns, len(models)), np.inf)
    with torch.inference_mode():
        for turn in range(turns):
            for place, model in enumerate(models):
                begin = time.perf_counter()
                model.eval()(picture)
                times[turn, place] = 1000 * (time.perf_counter() - begin)
    return [float(value) for value in times.min(axis=0)]


def main(given: argparse.Namespace) -> None:
    """Train (without weights), search, train on, compare, export."""
    folder, size = given.out, given.size
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(given.seed)
    generated = generate(folder / "generated", {"train": 64, "val": 24, "unlabelled": 48}, size, given.seed)
    data = given.data or str(generated)
    pictures = read_pictures(given.pictures or folder / "generated/images/unlabelled", size, given.most)
    held_out = read_pictures(given.pictures or folder / "generated/images/val", size, 24)
    training: dict[str, Any] = {
        "data": data, "imgsz": size, "batch": 16, "nbs": 16, "optimizer": "AdamW", "warmup_epochs": 0,
        "device": "cpu", "workers": 0, "amp": False, "plots": False, "verbose": False, "seed": given.seed,
        "project": str(folder.resolve()), "exist_ok": True,
    }  # fmt: skip

    before = YOLO(given.weights or given.config)
    if not given.weights:
        before.train(epochs=given.first_epochs, name="original", lr0=0.002, **training)
    options = dp.SearchConfig(
        focus=given.flops,
        offspring=given.offspring,
        generations=given.generations,
        depth=False,  # stand-ins for removed branches are classes that Ultralytics does not know
        seed=given.seed,
    )
    thin, share = search(before.model, as_inputs(pictures), given.flops, options)
    save(thin, folder / "refitted.pt")
    trained = YOLO(folder / "refitted.pt")
    trained.train(trainer=ThinTrainer, epochs=given.epochs, name="thin", lr0=0.0005, **training)
    shutil.copy(trained.trainer.best, folder / "thin.pt")

    rows = [("original", 1.0, before)]
    rows.append(("thin, refitted", share, YOLO(folder / "refitted.pt")))
    rows.append(("thin, trained on", share, YOLO(folder / "thin.pt")))
    report(rows, data, held_out, size)
    exported = YOLO(folder / "thin.pt").export(format="onnx", imgsz=size, device="cpu", verbose=False)
    print(f"exported {Path(exported).name}")


def save(model: nn.Module, path: Path) -> None:
    """A checkpoint in Ultralytics' form, in half precision as all of theirs."""
    model.criterion = None  # of a former training
    torch.save({"model": copy.deepcopy(model).half(), "train_args": {"task": "detect"}}, path)


def report(
    rows: list[tuple[str, float, YOLO]], data: str, pictures: list[np.ndarray[Any, Any]], size: int
) -> None:
    """One line for each network: FLOPs, latency, mAP of Ultralytics' own validation, boxes that stay."""
    # Folded copies, as in deployment; predict and val fold the networks themselves.
    times = milliseconds([copy.deepcopy(yolo.model).float().fuse(verbose=False) for _, _, yolo in rows], size)
    lines = []
    for (name, share, yolo), taken in zip(rows, times, strict=True):
        stay, count = boxes_that_stay(rows[0][2], yolo, pictures, size)
        found = yolo.val(data=data, imgsz=size, batch=8, device="cpu", workers=0, plots=False, verbose=False)
        lines.append(f"{name:20} {share:7.1%} {taken:7.2f} {found.box.map50:6.3f} {stay:7.1%} of {count}")
    print(f"{'network':20} {'FLOPs':>7} {'ms':>7} {'mAP50':>6} {'boxes that stay':>15}", *lines, sep="\n")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="yolov8n.yaml", help="a configuration of Ultralytics")
    parser.add_argument("--weights", help="a trained .pt file; otherwise a network is trained for a trial")
    parser.add_argument("--pictures", type=Path, help="folder of unlabelled pictures to search by")
    parser.add_argument("--most", type=int, default=300, help="number of pictures to search by, at most")
    parser.add_argument("--data", help="Ultralytics data set to train on and validate with")
    parser.add_argument("--size", type=int, default=64, help="side of a picture, a multiple of 32")
    parser.add_argument("--flops", type=float, default=0.6, help="share of the FLOPs to keep")
    parser.add_argument("--first-epochs", type=int, default=30, help="training of the trial network")
    parser.add_argument("--epochs", type=int, default=2, help="training of the thin network")
    parser.add_argument("--offspring", type=int, default=6)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/yolo"))
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
