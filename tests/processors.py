"""The plainest instructions that torch can be told to use, as another processor would have them."""

import os
import subprocess
import sys

import torch

PLAINEST = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}
# Where the tests themselves run with the plainest, the best there is.
OTHER_PROCESSOR = (
    dict.fromkeys(PLAINEST, "") if torch.backends.cpu.get_cpu_capability() == "DEFAULT" else PLAINEST
)


def capability(variables: dict[str, str]) -> str:
    """What torch uses where these variables are set."""
    program = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
