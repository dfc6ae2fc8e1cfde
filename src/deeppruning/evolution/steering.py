"""How the price of a genome goes with what it is found to cost: where the two differ, that is learnt.

>>> steering = Steering()
>>> steering.learn(price=0.25, cost=0.5)
>>> round(steering.price(0.25, 0.5, low=0.6, top=0.6), 3)
0.36
"""

from __future__ import annotations

import math

SAME = 1e-6  # logarithms of price and cost that differ by less are equal
FLATTEST, STEEPEST = 0.1, 10.0


class Steering:
    """Prices to ask for so that a cost is met. All are shares of the original's.

    FLOPs and parameters are what is asked for. A latency falls more slowly than the FLOPs do: there the
    cost is taken for a power of the price, whose exponent follows from all that has been evaluated.
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
        """By which power of the price the cost goes; 1 as long as nothing speaks against it."""
        if self.exact or self._products <= 0.0:
            return 1.0
        # Two digits are all that is meant, and the same on every processor.
        return round(min(max(self._products / self._squares, FLATTEST), STEEPEST), 2)

    def price(self, price: float, cost: float, *, low: float, top: float) -> float:
        """For a parent of this price and cost, the price at which its child falls into a range of cost.

        The end of the range where that can be met from below, else its middle.
        """
        wanted = top if self.exact else math.sqrt(low * top)
        return price * float((wanted / cost) ** (1.0 / self.exponent))
