"""Which multiples of filters are fast on this processor, measured once by timing a few convolutions.

Runtimes compute filters in blocks that fill a vector unit. With blocks of 8, a layer of 20 filters takes as
long as one of 24: a width half way between two multiples costs as much as the larger one.

>>> blocks_of_8 = {width: float((-(-width // 8) * 8) ** 2) for width in WIDTHS}
>>> largest_block([blocks_of_8])
8
>>> largest_block([{width: float(width) ** 2 for width in WIDTHS}])
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deeppruning.config import RUNTIMES
from deeppruning.deploying.onnx_graph import has_onnx
from deeppruning.latency.layers import LayerShape
from deeppruning.latency.runtimes import Conditions, Runtime, runtime_for
from deeppruning.latency.timing import LayerTimes, in_turns
from deeppruning.system.device import torch_threads

BATCH = 8  # with one input, the overhead of the call would dominate
TURNS = 5
# Multiple -> two neighbouring multiples of it with the width half way between them.
STEPS: dict[int, tuple[tuple[int, int, int], ...]] = {
    4: ((16, 18, 20), (28, 30, 32)),
    8: ((16, 20, 24), (24, 28, 32)),
    16: ((16, 24, 32), (32, 40, 48)),
}
WIDTHS = sorted({width for steps in STEPS.values() for step in steps for width in step})
# The share of the rise from one multiple to the next that half the filters cost: about 0.5, or 1 with blocks.
BLOCKED = 0.7
FLAT = 0.02  # a relative rise from one multiple to the next that is too small to be significant

Times = Mapping[int, float]


def _convolution_to_time(size: int, kernel: int) -> LayerShape:
    return LayerShape((size, size), (kernel, kernel), (1, 1), (kernel // 2, kernel // 2), (1, 1))


SHAPES = (_convolution_to_time(16, 3), _convolution_to_time(8, 3), _convolution_to_time(16, 1))


def find_multiples(threads: int = 1, device: str = "cpu") -> dict[str, int]:
    """Each installed runtime -> the multiple beyond which the time per filter hardly improves."""
    names = [name for name in RUNTIMES if name == "torch" or (device == "cpu" and has_onnx())]
    runtimes = [runtime_for(Conditions(name, BATCH, threads, device)) for name in names]
    return {runtime.version: largest_block(_times_by_width(runtime)) for runtime in runtimes}


def largest_block(times: Sequence[Times]) -> int:
    """The largest block size that shows in the seconds by width of some layers, or 1."""
    return max((multiple for multiple in STEPS if _share_of_steps(times, multiple) > BLOCKED), default=1)


def _share_of_steps(times: Sequence[Times], multiple: int) -> float:
    """The share of the rise from one multiple to the next that is paid half way, over all layers."""
    steps = [
        (seconds[low], seconds[middle], seconds[high])
        for seconds in times
        for low, middle, high in STEPS[multiple]
    ]
    half = sum((middle - low) / high for low, middle, high in steps)
    whole = sum((high - low) / high for low, _, high in steps)
    return half / whole if whole > FLAT * len(steps) else 0.0


def _times_by_width(runtime: Runtime) -> list[Times]:
    """Seconds of each shape by width, from the cache of this machine or measured in turns."""
    cache = LayerTimes.of(runtime)
    times: list[Times] = []
    with torch_threads(runtime.conditions.threads):
        for shape in SHAPES:
            if not all(cache.knows(shape, (width, width)) for width in WIDTHS):
                forwards = [runtime.layer(shape, (width, width)) for width in WIDTHS]
                measured = in_turns(forwards, TURNS, on_cpu=runtime.on_cpu)
                for width, seconds in zip(WIDTHS, measured, strict=True):
                    cache.put(shape, (width, width), seconds)
            times.append({width: cache.at(shape, (width, width)) for width in WIDTHS})
    cache.save()
    return times
