"""Which of several ways to try next: those that have succeeded more often, more often.

>>> chances = Chances(("a", "b"))
>>> for _ in range(50):
...     chances.learn("a", success=True)
...     chances.learn("b", success=False)
>>> chances.of("a") > 4 * chances.of("b")
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

EVEN = 0.3  # of all chances this part is shared evenly: no way is given up for good


class Chances:
    """Counts tries and successes of each way, which begins as if it had had one in three."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.tried: Counter[str] = Counter()
        self.successes: Counter[str] = Counter()

    def learn(self, name: str, *, success: bool) -> None:
        """Count one try."""
        self.tried[name] += 1
        self.successes[name] += success

    def of(self, name: str) -> float:
        """How likely a way is to be drawn."""
        return EVEN / len(self.names) + (1 - EVEN) * self._worth(name) / sum(map(self._worth, self.names))

    def draw(self, rng: np.random.Generator) -> str:
        """One of the ways."""
        chances = np.array([self.of(name) for name in self.names])
        return str(rng.choice(self.names, p=chances / chances.sum()))

    def _worth(self, name: str) -> float:
        return (self.successes[name] + 1) / (self.tried[name] + 3)
