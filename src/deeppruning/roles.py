"""The roles that networks of a run hold: the original and the three picks, their order, names and marks.

>>> [MARKS[role] for role in ROLES]
['H', 'K', 'L']
"""

import re

ORIGINAL = "original"
HEAVY, KNEE, LIGHT = "heavy", "knee", "light"
TARGET = "target"  # the best within the limits that were asked for; only where some were

ROLES = (HEAVY, KNEE, LIGHT)  # from the most accurate to the cheapest, as people are shown them
SOLUTIONS = (*ROLES, TARGET)  # those that a run may have
NETWORKS = (ORIGINAL, *ROLES)
# As they are selected, bred from, fine-tuned and recorded: what a seed leads to depends on this order.
SELECTED = (KNEE, HEAVY, LIGHT)

MARKS = {HEAVY: "H", KNEE: "K", LIGHT: "L", TARGET: "T"}  # one letter each, in a plot made of text
# Told apart by colour-blind readers too, and by shape: corners around the spot that is marked.
COLORS = {ORIGINAL: "#59636f", HEAVY: "#0067a3", KNEE: "#c24e00", LIGHT: "#007a58", TARGET: "#8a3ffc"}
SHAPES = {
    HEAVY: ((-6, -6), (6, -6), (6, 6), (-6, 6)),
    KNEE: ((0, -8), (8, 0), (0, 8), (-8, 0)),
    LIGHT: ((0, -8), (8, 6), (-8, 6)),
    TARGET: ((-8, -6), (8, -6), (0, 8)),
}


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
