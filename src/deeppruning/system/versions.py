"""What a run is computed by: versions of what its results depend on, and the processor's type."""

import platform
from pathlib import Path

import torch


def computed_by() -> dict[str, str]:
    """Python, torch with its build, and the processor: with these, and its options, a run can be repeated."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "processor": processor(),
    }


def processor() -> str:
    """The processor's model and the instructions torch uses on it, which decide the last bits of results."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model
        )
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}"
