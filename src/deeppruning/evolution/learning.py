"""What the guided strategy learns from evaluations: which operators succeed, and how price relates to cost.

>>> chances = Chances(("a", "b"))
>>> for _ in range(50):
...     chances.learn("a", success=True)
...     chances.learn("b", success=False)
>>> chances.of("a") > 4 * chances.of("b")
True
>>> steering = Steering()
>>> steering.learn(price=0.25, cost=0.5)
>>> round(steering.price(0.25, 0.5, low=0.6, top=0.6), 3)
0.36
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

EVEN = 0.3  # this part of the probability is shared evenly, so that no option is ever given up
SAME = 1e-6  # logarithms of price and cost that differ by less are equal
FLATTEST, STEEPEST = 0.1, 10.0


class Chances:
    """Draws options, successful ones more often; each starts as if it had succeeded once in three tries."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.tried: Counter[str] = Counter()
        self.successes: Counter[str] = Counter()

    def learn(self, name: str, *, success: bool) -> None:
        """Count one try."""
        self.tried[name] += 1
        self.successes[name] += success

    def of(self, name: str) -> float:
        """The probability that an option is drawn."""
        return EVEN / len(self.names) + (1 - EVEN) * self._success_rate(name) / sum(
            map(self._success_rate, self.names)
        )

    def draw(self, rng: np.random.Generator) -> str:
        """One of the options."""
        chances = np.array([self.of(name) for name in self.names])
        return str(rng.choice(self.names, p=chances / chances.sum()))

    def _success_rate(self, name: str) -> float:
        return (self.successes[name] + 1) / (self.tried[name] + 3)


class Steering:
    """Finds the price that leads to a cost; both are shares of the original's.

    For FLOPs and parameters price and cost are equal. A latency falls more slowly than the FLOPs: there the
    cost is modelled as a power of the price, with an exponent fitted to all evaluations.
    """

    def __init__(self) -> None:
        self._products, self._squares = 0.0, 0.0
        self.exact = True  # so far, the price was the cost

    def learn(self, *, price: float, cost: float) -> None:
        """Take note of an evaluated genome."""
        if min(price, cost) <= 0.0:
            return
        x, y = math.log(price), math.log(cost)
        self.exact = self.exact and abs(x - y) < SAME
        self._products += x * y
        self._squares += x * x

    @property
    def exponent(self) -> float:
        """The exponent of the fitted power; 1 as long as price and cost agree."""
        if self.exact or self._products <= 0.0:
            return 1.0
        # Two digits are accurate enough, and the same on every processor.
        return round(min(max(self._products / self._squares, FLATTEST), STEEPEST), 2)

    def price(self, price: float, cost: float, *, low: float, top: float) -> float:
        """The price of a child of a parent with this price and cost, so that its cost lies in [low, top].

        The end of the range if price and cost are equal, else its middle.
        """
        wanted = top if self.exact else math.sqrt(low * top)
        return price * float((wanted / cost) ** (1.0 / self.exponent))
