"""Scores, operators and parents in a history: stored, read back, refused if damaged."""

import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from deeppruning.errors import InputError, RunError
from deeppruning.runs import Candidate, Evaluation, History, Status

ONE, TWO, THREE = (np.arange(9) % step == 0 for step in (1, 2, 3))
ORIGINS = [("original", ()), ("seed l1", ()), ("cross", (0, 1))]


def evaluation(genome: np.ndarray, **changes: object) -> Evaluation:
    values = {"error": 0.25, "cost": 5.0, "flops": 5, "params": 7, "score": 0.125}
    return Evaluation(genome=genome, **(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


class TestRecords:
    def test_the_search_judges_by_the_score_or_else_by_the_error(self) -> None:
        assert evaluation(ONE).judged == 0.125
        assert evaluation(ONE, score=0.0).judged == 0.0
        assert evaluation(ONE, score=None).judged == 0.25
        assert math.isnan(evaluation(ONE, error=None, cost=None, score=None, status="failed").judged)

    @pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
    def test_a_score_is_finite(self, score: float) -> None:
        with pytest.raises(InputError, match="score of an evaluation must be finite"):
            evaluation(ONE, score=score)

    @pytest.mark.parametrize("status", [Status.DIVERGED, Status.FAILED])
    def test_what_came_to_nothing_has_no_score(self, status: Status) -> None:
        with pytest.raises(InputError, match=r"None for one that diverged or failed, got 0\.125"):
            evaluation(ONE, error=None, cost=None, status=status)

    @pytest.mark.parametrize("parents", [(3,), (0, 4), (-1,)])
    def test_parents_come_before(self, parents: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match="parents of candidate 3 must be candidates before it"):
            Candidate(3, 1, ONE, None, "cross", parents)


class TestHistory:
    def test_origins_and_scores_come_back(self, path: Path) -> None:
        with History(path) as history:
            history.record_generation(1, enumerate((ONE, TWO, THREE)), ORIGINS)
            history.record_evaluation(evaluation(ONE, score=np.float32(0.125)))
            history.record_evaluation(evaluation(TWO, error=None, cost=None, score=None, status="diverged"))
        with History(path, read_only=True) as history:
            rows, snapshot = history.candidates(), history.snapshot()["candidates"]
            found = history.evaluation(ONE)
        assert [(row.operator, row.parents) for row in rows] == ORIGINS
        assert [row.evaluation.score if row.evaluation else "none" for row in rows] == [0.125, None, "none"]
        assert found is not None and found.score == 0.125
        assert [(row.operator, row.parents) for row in snapshot] == ORIGINS

    def test_resuming_repeats_them_and_may_not_change_them(self, path: Path) -> None:
        genomes = list(enumerate((ONE, TWO, THREE)))
        with History(path) as history:
            history.record_generation(1, genomes, ORIGINS)
        changed = ([*ORIGINS[:2], ("cross", (0,))], [*ORIGINS[:2], ("swap", (0, 1))], ())
        with History(path) as history:
            history.record_generation(1, genomes, ORIGINS)
            for origins in changed:
                with pytest.raises(
                    RunError, match=r"candidate [012] of generation 1 is not the one recorded"
                ):
                    history.record_generation(1, genomes, origins)
            assert [(row.operator, row.parents) for row in history.candidates()] == ORIGINS

    def test_origins_are_of_all_or_of_none(self, path: Path) -> None:
        with History(path) as history:
            with pytest.raises(InputError, match="2 candidates need as many origins or none, got 3"):
                history.record_generation(1, [(0, ONE), (1, TWO)], ORIGINS)
            with pytest.raises(InputError, match="parents of candidate 1 must be candidates before it"):
                history.record_generation(1, [(0, ONE), (1, TWO)], [("original", ()), ("cross", (1,))])
            assert history.candidates() == []
            history.record_generation(1, [(0, ONE)])
            assert [(row.operator, row.parents) for row in history.candidates()] == [("", ())]

    def test_a_name_of_an_operator_is_text_whatever_it_holds(self, path: Path) -> None:
        name = "'); DROP TABLE candidates; -- <b>, 1"
        with History(path) as history:
            history.record_generation(1, [(0, ONE)], [(name, ())])
            assert history.candidates()[0].operator == name


class TestDamage:
    @pytest.mark.parametrize(
        "text", ["one", "0,", ",0", "0, 1", "-1", "1.0", "0;1", "1_0", "\u0661", "9" * 5000, "0\n"]
    )
    def test_parents_that_are_no_numbers_are_refused(self, path: Path, text: str) -> None:
        self.damage(path, "UPDATE candidates SET parents = ? WHERE id = 2", text)
        with (
            History(path, read_only=True) as history,
            pytest.raises(RunError, match=r"history\.sqlite .* parents of candidate 2 .* numbers"),
        ):
            history.snapshot()

    @pytest.mark.parametrize("text", ["2", "0,7", "999999999999999999"])
    def test_parents_that_do_not_come_before_are_refused(self, path: Path, text: str) -> None:
        self.damage(path, "UPDATE candidates SET parents = ? WHERE id = 2", text)
        with History(path) as history, pytest.raises(RunError, match="must be candidates before it"):
            history.candidates()

    @pytest.mark.parametrize(
        ("sql", "value"),
        [
            ("UPDATE candidates SET parents = ? WHERE id = 2", b"0,1"),
            ("UPDATE candidates SET operator = ? WHERE id = 2", b"cross"),
            ("UPDATE evaluations SET score = ?", "low"),
        ],
    )
    def test_values_of_another_kind_are_refused(self, path: Path, sql: str, value: object) -> None:
        self.damage(path, sql, value)
        with pytest.raises(RunError, match=r"is damaged: a (parents|operator|score) of its"):
            History(path, read_only=True)

    def test_a_score_that_is_not_finite_is_refused(self, path: Path) -> None:
        self.damage(path, "UPDATE evaluations SET score = ?", math.inf)
        with (
            History(path, read_only=True) as history,
            pytest.raises(RunError, match="score of an evaluation"),
        ):
            history.candidates()

    def damage(self, path: Path, sql: str, value: object) -> None:
        with History(path) as history:
            history.record_generation(1, enumerate((ONE, TWO, THREE)), ORIGINS)
            history.record_evaluation(evaluation(ONE))
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute(sql, (value,))
        raw.close()
