"""Times of convolutions as a machine has them that computes filters in blocks, in place of measured ones."""

from deeppruning.deploying.onnx_graph import has_onnx
from deeppruning.latency import Conditions
from deeppruning.latency.multiples import BATCH, SHAPES, WIDTHS
from deeppruning.latency.runtimes import runtime_for
from deeppruning.latency.timing import LayerTimes


def blocked(block: int) -> dict[int, float]:
    """Seconds by width where filters are padded to whole blocks."""
    return {width: 1e-9 * (-(-width // block) * block) ** 2 for width in WIDTHS}


def keep_times(*, block: int, runtimes: tuple[str, ...] = ("torch", "onnxruntime")) -> None:
    """Write such times into the cache folder, as if they had been measured."""
    for name in runtimes:
        if name == "onnxruntime" and not has_onnx():
            continue
        kept = LayerTimes.of(runtime_for(Conditions(name, BATCH)))
        for shape in SHAPES:
            for width, seconds in blocked(block).items():
                kept.put(shape, (width, width), seconds)
        kept.save()
