"""The versions and the CPU that the results of a run depend on."""

import platform
from collections.abc import Mapping
from pathlib import Path

import torch


def computed_by() -> dict[str, str]:
    """Python, torch with its build, and the CPU: with these and the same options a run can be repeated."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "processor": processor(),
    }


def versions_line(versions: Mapping[str, str]) -> str:
    """The same as one line of text.

    >>> versions_line({"python": "3.12.1", "torch": "2.13.0", "processor": "AMD EPYC, AVX2"})
    'AMD EPYC, AVX2 (torch 2.13.0)'
    >>> versions_line({"torch": "2.13.0", "processor": "AMD EPYC, DEFAULT"})
    'AMD EPYC, baseline instructions (torch 2.13.0)'
    """
    shown = str(versions.get("processor")).replace(", DEFAULT", ", baseline instructions")
    return f"{shown} (torch {versions.get('torch')})"


def processor() -> str:
    """The CPU's model and the instruction set torch uses on it, which decide the last bits of results."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model
        )
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}"
