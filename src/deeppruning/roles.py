"""The roles that networks of a run hold: the original and the three picks, their order, names and marks.

>>> [MARKS[role] for role in ROLES]
['H', 'K', 'L']
"""

import re
from collections.abc import Iterable

ORIGINAL = "original"
HEAVY, KNEE, LIGHT = "heavy", "knee", "light"
TARGET = "target"  # the best within the limits that were asked for; the second of a run is "target-2"

ROLES = (HEAVY, KNEE, LIGHT)  # from the most accurate to the cheapest, as people are shown them
NETWORKS = (ORIGINAL, *ROLES)
# As they are selected, bred from, fine-tuned and recorded: what a seed leads to depends on this order.
SELECTED = (KNEE, HEAVY, LIGHT)

MARKS = {HEAVY: "H", KNEE: "K", LIGHT: "L", TARGET: "T"}  # one letter each, in a plot made of text
# Distinguishable by colour-blind readers too.
COLORS = {ORIGINAL: "#59636f", HEAVY: "#0067a3", KNEE: "#c24e00", LIGHT: "#007a58", TARGET: "#8a3ffc"}


def candidate_name(id_: int) -> str:
    """How a candidate that is fine-tuned by itself is called, in the place of a role.

    >>> candidate_name(17)
    'candidate-17'
    """
    return f"candidate-{id_}"


def candidate_number(name: str) -> int | None:
    """The candidate that such a name speaks of, be it of a second training: "candidate-17/slower".

    >>> candidate_number("candidate-17"), candidate_number("knee")
    (17, None)
    """
    found = re.fullmatch(r"candidate-(\d+)(/.*)?", name)
    return int(found[1]) if found else None


def target_name(number: int) -> str:
    """How the target of this number is called; the first one is plainly the target.

    >>> target_name(1), target_name(2)
    ('target', 'target-2')
    """
    return TARGET if number == 1 else f"{TARGET}-{number}"


def target_number(name: str) -> int | None:
    """Which of a run's targets such a name speaks of.

    >>> target_number("target"), target_number("target-2"), target_number("target-1"), target_number("knee")
    (1, 2, None, None)
    """
    found = re.fullmatch(r"target(?:-([2-9]|[1-9][0-9]{1,8}))?", name)
    return int(found[1] or 1) if found else None


def kind_of(role: str) -> str:
    """What decides the look of a role: all targets are shown alike."""
    return role if target_number(role) is None else TARGET


def in_order(names: Iterable[str]) -> list[str]:
    """The picks and targets among these names, as people are shown them.

    >>> in_order(["target-2", "light", "candidate-7", "target", "heavy"])
    ['heavy', 'light', 'target', 'target-2']
    """
    given = set(names)
    targets = sorted((number, name) for name in given if (number := target_number(name)) is not None)
    return [role for role in ROLES if role in given] + [name for _, name in targets]
