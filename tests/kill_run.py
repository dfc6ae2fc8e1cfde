"""A program that starts a run in a child process and kills it, again and again, until it gets through.

Run by test_kill.py as `kill_run.py FOLDER SEED KILLS STRATEGY`; leaves the runs 0, 1, ... in the folder,
as many as it takes to kill so often. A child is forked from a process that has torch loaded and has used
a single thread only, so that a kill costs little.
"""

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import deeppruning as dp
from deeppruning.searching.events import Event, GenerationDone, Remark, Started
from search_helpers import digits, quick_finetune, quick_guided, quick_search, tiny_net

SEARCHES = {"paper": quick_search, "guided": lambda: quick_guided(generations=2)}


def work(folder: Path, report: int, strategy: str) -> None:
    """Start the run, or go on with it where the last child was killed; a byte for each new result."""

    def observer(event: Event) -> None:
        if not isinstance(event, (Started, Remark, GenerationDone)) and getattr(event, "fresh", True):
            os.write(report, b".")

    train, test = digits()
    if (folder / "config.toml").exists():
        dp.resume(folder, tiny_net(), train, test, workers=1, observer=observer)
    else:
        dp.prune(
            tiny_net(),
            train,
            test,
            run_dir=folder,
            search=SEARCHES[strategy](),
            finetune=quick_finetune(keep_best=strategy == "guided"),
            workers=1,
            observer=observer,
        )


def wait_and_kill(child: int, report: int, draw: random.Random) -> None:
    """Let a few results come in, or none, then a moment pass: kills fall into every part of a run."""
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        if not os.read(report, 1):
            return  # the child has ended
    time.sleep(draw.uniform(0.0, 0.05))
    os.kill(child, signal.SIGKILL)


def run_to_its_end(folder: Path, draw: random.Random, kills: int, strategy: str) -> int:
    """Run, killed at most so many times; how often it was killed before it got through."""
    killed = 0
    while True:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            work(folder, writing, strategy)
            os._exit(0)
        os.close(writing)
        if killed < kills:
            wait_and_kill(child, reading, draw)
        _, status = os.waitpid(child, 0)
        os.close(reading)
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                sys.exit(os.WEXITSTATUS(status))
            return killed
        killed += 1


def main() -> None:
    """Runs, one after the other, until all kills are spent: how many fit into one depends on the machine."""
    folder, draw, kills = Path(sys.argv[1]), random.Random(int(sys.argv[2])), int(sys.argv[3])
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)])  # the first one loads much, which each child would do anew
    for number in itertools.count():
        kills -= run_to_its_end(folder / str(number), draw, kills, sys.argv[4])
        if kills <= 0:
            break


if __name__ == "__main__":
    main()
