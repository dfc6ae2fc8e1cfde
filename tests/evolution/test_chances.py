"""Ways that succeed are drawn more often, and none is given up."""

import numpy as np

from deeppruning.evolution.chances import EVEN, Chances


def test_all_begin_alike_and_add_up_to_one() -> None:
    chances = Chances(("a", "b", "c", "d"))
    assert [chances.of(name) for name in chances.names] == [0.25] * 4


def test_what_never_succeeds_keeps_its_part_of_what_is_shared_evenly() -> None:
    chances = Chances(("a", "b"))
    for _ in range(1000):
        chances.learn("a", success=True)
        chances.learn("b", success=False)
    assert EVEN / 2 < chances.of("b") < EVEN / 2 + 0.01
    rng = np.random.default_rng(0)
    drawn = [chances.draw(rng) for _ in range(1000)]
    assert 100 < drawn.count("b") < 200
    assert chances.tried["a"] == 1000 and chances.successes["b"] == 0
