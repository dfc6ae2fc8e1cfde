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
    """The name of a candidate that is fine-tuned by itself, in place of a role.

    >>> candidate_name(17)
    'candidate-17'
    """
    return f"candidate-{id_}"


def candidate_number(name: str) -> int | None:
    """The id in the name of a candidate, also of a second training: "candidate-17/slower".

    >>> candidate_number("candidate-17"), candidate_number("knee")
    (17, None)
    """
    match = re.fullmatch(r"candidate-(\d+)(/.*)?", name)
    return int(match[1]) if match else None


def target_name(number: int) -> str:
    """The name of a target by its number; the first is just "target".

    >>> target_name(1), target_name(2)
    ('target', 'target-2')
    """
    return TARGET if number == 1 else f"{TARGET}-{number}"


def target_number(name: str) -> int | None:
    """The number of a target by its name; None for any other name.

    >>> target_number("target"), target_number("target-2"), target_number("target-1"), target_number("knee")
    (1, 2, None, None)
    """
    match = re.fullmatch(r"target(?:-([2-9]|[1-9][0-9]{1,8}))?", name)
    return int(match[1] or 1) if match else None


def kind_of(role: str) -> str:
    """The role that decides how a network is shown: all targets look alike."""
    return role if target_number(role) is None else TARGET


def in_order(names: Iterable[str]) -> list[str]:
    """The picks and targets among these names, in the order in which they are shown.

    >>> in_order(["target-2", "light", "candidate-7", "target", "heavy"])
    ['heavy', 'light', 'target', 'target-2']
    """
    given = set(names)
    targets = sorted((number, name) for name in given if (number := target_number(name)) is not None)
    return [role for role in ROLES if role in given] + [name for _, name in targets]
