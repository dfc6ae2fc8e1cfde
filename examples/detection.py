"""Prune a one-stage detector to half of its FLOPs by unlabelled pictures, and see what becomes of its AP."""

import sys

import torch
from torch import Tensor, nn

import deeppruning as dp

SIDE, STRIDE = 48, 4  # of a picture and of a cell of the head, in pixels
CELLS = SIDE // STRIDE


def scenes(count: int) -> tuple[Tensor, list[Tensor]]:
    """Noisy pictures of plates, which are to be found, and frames, which are not; the boxes of the plates.

    Each quarter of a picture is empty or has one of them. A box is left, top, right, bottom.
    """
    pictures, boxes = torch.zeros(count, 1, SIDE, SIDE), []
    for picture in pictures:
        found = []
        for quarter in range(4):
            kind, width, height = (int(value) for value in torch.randint(8, 19, (3,)))
            left = quarter % 2 * 24 + int(torch.randint(0, 24 - width + 1, ()))
            top = quarter // 2 * 24 + int(torch.randint(0, 24 - height + 1, ()))
            if kind > 14:
                continue
            picture[0, top : top + height, left : left + width] = 1.0
            if kind > 12:
                picture[0, top + 2 : top + height - 2, left + 2 : left + width - 2] = 0.0
            else:
                found.append([left, top, left + width, top + height])
        boxes.append(torch.tensor(found, dtype=torch.float32).reshape(-1, 4))
    return pictures + 0.4 * torch.randn(pictures.shape), boxes


class Detector(nn.Module):
    """Says of every cell whether a plate's centre lies in it, where in it, and how large the plate is."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((1, 16, 2), (16, 32, 2), (32, 48, 2), (48, 48, 1))
        self.backbone = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 3, stride, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            for i, o, stride in widths
        )
        self.lateral = nn.Conv2d(32, 48, 1)  # the finer cells, added to the coarser ones made larger
        self.tower = nn.Sequential(nn.Conv2d(48, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU())
        self.objectness = nn.Conv2d(48, 1, 1)
        self.boxes = nn.Conv2d(48, 4, 1)
        nn.init.constant_(self.objectness.bias, -3.0)  # most cells are empty

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        fine = self.backbone[1](self.backbone[0](x))
        coarse = self.backbone[3](self.backbone[2](fine))
        both = self.lateral(fine) + nn.functional.interpolate(coarse, scale_factor=2.0)
        seen = self.tower(both)
        return {"objectness": self.objectness(seen)[:, 0], "boxes": self.boxes(seen)}


def targets(boxes: list[Tensor]) -> tuple[Tensor, Tensor]:
    """What the head should say: cells with a centre, and the place and logarithmic size of its box."""
    centres, wanted = torch.zeros(len(boxes), CELLS, CELLS), torch.zeros(len(boxes), 4, CELLS, CELLS)
    for number, each in enumerate(boxes):
        middle, size = (each[:, :2] + each[:, 2:]) / 2 / STRIDE, (each[:, 2:] - each[:, :2]) / STRIDE
        column, row = middle.long().clamp(max=CELLS - 1).unbind(1)
        centres[number, row, column] = 1.0
        wanted[number, :, row, column] = torch.cat([middle - middle.floor(), size.log()], 1).T
    return centres, wanted


def train(model: nn.Module, pictures: Tensor, boxes: list[Tensor], epochs: int, lr: float) -> None:
    """Adam with a falling rate; boxes count only where there is one."""
    centres, wanted = targets(boxes)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(pictures)).split(32):
            out, there = model(pictures[rows]), centres[rows]
            loss = nn.functional.binary_cross_entropy_with_logits(out["objectness"], there, reduction="sum")
            loss = loss + ((out["boxes"] - wanted[rows]).abs().sum(1) * there).sum()
            optimizer.zero_grad()
            (loss / there.sum().clamp_min(1)).backward()
            optimizer.step()
        schedule.step()


def detect(model: nn.Module, pictures: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Scores and boxes of each picture: of cells that are surer than their neighbours."""
    with torch.no_grad():
        out = model.eval()(pictures)
    scores = out["objectness"].sigmoid()
    peaks = (scores == nn.functional.max_pool2d(scores, 3, 1, 1)) & (scores > 0.05)
    found = []
    for score, peak, values in zip(scores, peaks, out["boxes"], strict=True):
        row, column = peak.nonzero(as_tuple=True)
        offset, size = values[:2, row, column].T, values[2:, row, column].T.exp()
        middle = torch.stack([column, row], 1) + offset
        found.append((score[peak], torch.cat([middle - size / 2, middle + size / 2], 1) * STRIDE))
    return found


def overlaps(one: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of one box with others."""
    inner = torch.minimum(one[2:], others[:, 2:]) - torch.maximum(one[:2], others[:, :2])
    both = inner.clamp_min(0).prod(1)
    areas = (others[:, 2:] - others[:, :2]).prod(1) + (one[2:] - one[:2]).prod()
    return both / (areas - both)


def average_precision(model: nn.Module, pictures: Tensor, boxes: list[Tensor]) -> float:
    """AP at IoU 0.5: the area under precision against recall, the surest detections first.

    Each box may be found once; a second detection of it is a false one.
    """
    every = [
        (float(score), number, box)
        for number, (scores, found) in enumerate(detect(model, pictures))
        for score, box in zip(scores, found, strict=True)
    ]
    free = [torch.ones(len(each), dtype=torch.bool) for each in boxes]
    right = torch.zeros(len(every))
    for place, (_, number, box) in enumerate(sorted(every, key=lambda one: -one[0])):
        overlap = overlaps(box, boxes[number]) * free[number]
        if len(overlap) and overlap.max() >= 0.5:
            free[number][overlap.argmax()] = False
            right[place] = 1.0
    precision = right.cumsum(0) / torch.arange(1, len(every) + 1)
    best_from_here = precision.flip(0).cummax(0).values.flip(0) if len(every) else precision
    return float((best_from_here * right).sum() / sum(map(len, boxes)))


def main(seed: int = 0) -> None:
    """Train, search without boxes, train on."""
    torch.manual_seed(seed)
    labelled, unlabelled, held_out = scenes(500), scenes(150)[0], scenes(300)
    model = Detector()
    train(model, *labelled, epochs=15, lr=0.005)
    print(f"{'network':24} {'FLOPs':>7} {'AP at 0.5':>9}")
    print(f"{'original':24} {1:7.1%} {average_precision(model, *held_out):9.3f}")

    options = dp.SearchConfig(focus=0.5, offspring=10, generations=5, seed=seed)
    front = dp.search(model, unlabelled, search=options, workers=1)
    half = front.at(flops=0.5)
    thin, share = half.model, half.flops / front.original.flops
    print(f"{'half, refitted':24} {share:7.1%} {average_precision(thin, *held_out):9.3f}")

    train(thin, *labelled, epochs=4, lr=0.001)
    print(f"{'half, trained on':24} {share:7.1%} {average_precision(thin, *held_out):9.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
