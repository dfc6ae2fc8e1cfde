"""The run of a U-Net for the gallery: the network of an example, with a task that measures its mean IoU.

python tools/gallery_unet.py runs/unet
"""

import sys
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

import deeppruning as dp

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from segmentation_unlabelled import SIDE, UNet, mean_iou, scenes, train

Scenes = tuple[Tensor, Tensor]


class Segmentation(dp.Task):
    """Refit on some pictures, judged on others by 1 - mean IoU, trained briefly in the end."""

    def __init__(self, labelled: Scenes, judged: Scenes, held_out: Scenes) -> None:
        self.labelled, self.judged, self.held_out = labelled, judged, held_out

    def candidate_error(self, model: nn.Module, seed: int) -> float:
        """As the network is after its refit: nothing is trained here."""
        return 1 - mean_iou(model, *self.judged)

    def refit_inputs(self, *, final: bool = False) -> Tensor:
        """The pictures without their masks."""
        return self.labelled[0]

    def untrained_error(self, model: nn.Module) -> float:
        """The error of the original where candidates are judged."""
        return self.candidate_error(deepcopy(model), 0)

    def finetune(self, model: nn.Module, *, round: int, seed: int, checkpoint: Path) -> None:
        """Four epochs, as in the example."""
        torch.manual_seed(seed)
        train(model, *self.labelled, epochs=4, lr=0.001)

    def test_error(self, model: nn.Module) -> float:
        """On pictures that were used for nothing else."""
        return 1 - mean_iou(model, *self.held_out)


def main(folder: Path) -> None:
    """Train the original, search, train the networks that were chosen."""
    torch.manual_seed(0)
    task = Segmentation(scenes(300), scenes(100), scenes(200))
    model = UNet()
    train(model, *task.labelled, epochs=14, lr=0.01)
    result = dp.prune(
        model,
        task=task,
        run_dir=folder,
        example_input=torch.zeros(1, 1, SIDE, SIDE),
        target={"flops": 0.5},
        workers=1,
        tables={"model": {"spec": "U-Net"}, "data": {"data": "discs and squares"}},
    )
    print(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
