"""The command line as a program that sends itself a signal once it has printed a certain text.

No test has to hit the moment from outside: run as `signalled.py SIGNAL TEXT ARGUMENTS...`, it is stopped,
interrupted or killed there, however busy the machine is.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click


def start(signal: int, text: str, *given: object) -> "subprocess.Popen[str]":
    """The command `deeppruning GIVEN...` in a process of its own, which meets the signal after the text."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__)), str(int(signal)), text, *map(str, given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_stopped(process: "subprocess.Popen[str]") -> None:
    """Until the process has met SIGSTOP; it is an error if it ends instead."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it was to stop and has ended: {process.communicate()[1]}"


def _main() -> None:
    signal, text = int(sys.argv[1]), sys.argv[2]
    del sys.argv[1:3]
    say = click.echo

    def say_and_signal(message: Any = None, *args: Any, **options: Any) -> None:
        say(message, *args, **options)
        if text in str(message):
            sys.stdout.flush()
            os.kill(os.getpid(), signal)

    click.echo = say_and_signal
    from deeppruning.cli.main import main

    main()


if __name__ == "__main__":
    _main()
