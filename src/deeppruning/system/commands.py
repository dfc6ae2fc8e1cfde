"""Commands as people are told them: whatever a path holds, they can be pasted into a shell."""

import shlex


def command(*words: object) -> str:
    """A command of this program.

    >>> command("resume", "my runs/thin")
    "deeppruning resume 'my runs/thin'"
    """
    return shlex.join(["deeppruning", *map(str, words)])
