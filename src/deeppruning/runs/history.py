"""Everything that happened in a run, committed as it happens, so that a killed run can be resumed.

>>> import tempfile
>>> with History(Path(tempfile.mkdtemp()) / "history.sqlite") as history:
...     history.set_fact("original_flops", 125_000_000)
...     history.get_fact("original_flops")
125000000
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple
from pathlib import Path
from typing import Any, overload

from deeppruning.errors import InputError, RunError
from deeppruning.genome import Genome, pack_genome, unpack_genome
from deeppruning.runs.database import connect, readable_errors, transaction
from deeppruning.runs.facts import Fact, Kept, named
from deeppruning.runs.records import Candidate, EpochRow, Evaluation

_EVALUATION = (
    *("num_genes", "error", "cost", "flops", "params", "seconds", "worker"),
    *("status", "detail", "finished_at", "score"),
)
_EVALUATION_COLUMNS = ", ".join(f"evaluations.{name}" for name in _EVALUATION)
_CANDIDATE_COLUMNS = "id, generation, genome, candidates.num_genes, operator, parents"
# A file in a traceback; its name is kept, its folder is not.
_TRACED = re.compile(r'File "[^"\n]*[/\\]([^"/\\\n]+)"')
_EPOCH = "solution, epoch, train_loss, train_error, test_error, lr, seconds"


class History(AbstractContextManager["History"]):
    """The history of one run. Every `record_` call is on the disk when it returns, whole or not at all.

    One process writes, which the lock of the run folder ensures; any number may read at the same time with
    `read_only`. An instance belongs to the thread that made it.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._aliases: dict[str, str] = {}
        self._connection = connect(self.path, read_only=read_only)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def record_evaluation(self, evaluation: Evaluation) -> None:
        """Store the evaluation of a genome; a second evaluation of the same genome changes nothing."""
        row = (
            pack_genome(evaluation.genome),
            len(evaluation.genome),
            *(None if value is None else float(value) for value in (evaluation.error, evaluation.cost)),
            int(evaluation.flops),
            int(evaluation.params),
            float(evaluation.seconds),
            self._worker_alias(evaluation.worker),
            evaluation.status.value,
            _TRACED.sub(r'File "\1"', evaluation.detail),
            evaluation.finished_at,
            None if evaluation.score is None else float(evaluation.score),
        )
        self._write_rows(
            f"INSERT INTO evaluations (genome, {', '.join(_EVALUATION)}) VALUES ({_question_marks(row)}) "
            "ON CONFLICT (genome) DO NOTHING",
            [row],
        )

    def _worker_alias(self, worker: str) -> str:
        """A worker by its number: a history may be shared, and names neither machines nor processes."""
        return self._aliases.setdefault(worker, f"worker {len(self._aliases) + 1}") if worker else ""

    def evaluation(self, genome: Genome) -> Evaluation | None:
        """The evaluation of this genome, if there is one."""
        sql = f"SELECT {_EVALUATION_COLUMNS} FROM evaluations WHERE genome = ?"
        rows = self._read_rows(sql, (pack_genome(genome),))
        with readable_errors(self.path):
            return _evaluation_of_row(genome, rows[0]) if rows else None

    def record_generation(
        self,
        generation: int,
        candidates: Iterable[tuple[int, Genome]],
        origins: Sequence[tuple[str, Sequence[int]]] = (),
    ) -> None:
        """Store ids and genomes proposed in a generation; repeating it is allowed, changing it is not.

        `origins` holds operator and parents of each candidate, in the same order, if they are known.
        """
        proposed = list(candidates)
        if origins and len(origins) != len(proposed):
            raise InputError(f"{len(proposed)} candidates need as many origins or none, got {len(origins)}")
        rows = [
            _candidate_row(
                Candidate(int(id_), int(generation), genome, None, str(operator), tuple(map(int, parents)))
            )
            for (id_, genome), (operator, parents) in zip(
                proposed, origins or [("", ())] * len(proposed), strict=True
            )
        ]
        recorded = {row[0]: row for row in self._read_rows(f"SELECT {_CANDIDATE_COLUMNS} FROM candidates")}
        for row in rows:
            if recorded.get(row[0], row) != row:
                raise RunError(
                    f"{self.path}: candidate {row[0]} of generation {generation} is not the one recorded; "
                    "the run was made with other options, another network or another version: start a new one"
                )
        self._write_rows("INSERT INTO candidates VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", rows)

    def record_picks(self, generation: int, picks: Mapping[str, int]) -> None:
        """Store which candidate has which role after a generation."""
        rows = [(int(generation), role, int(id_)) for role, id_ in picks.items()]
        self._write_rows(
            "INSERT OR REPLACE INTO picks (generation, role, candidate_id) VALUES (?, ?, ?)", rows
        )

    def record_epoch(self, epoch: EpochRow) -> None:
        """Store one epoch of fine-tuning; an epoch that is run again replaces the earlier one."""
        row = astuple(epoch)
        self._write_rows(f"INSERT OR REPLACE INTO epochs ({_EPOCH}) VALUES ({_question_marks(row)})", [row])

    def forget_epochs(self, solution: str) -> None:
        """Delete the epochs of a fine-tuning that starts again; epoch 0, before training, stays."""
        self._write_rows("DELETE FROM epochs WHERE solution = ? AND epoch > 0", [(solution,)])

    def set_fact(self, fact: Fact[Kept] | str, value: Kept) -> None:
        """Store a fact, replacing the earlier value; one that is not in `runs.facts` is given by name."""
        key = fact if isinstance(fact, str) else fact.key
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"fact {key!r} must be a JSON value, got {value!r} ({error})") from error
        self._write_rows("INSERT OR REPLACE INTO facts (key, value) VALUES (?, ?)", [(key, text)])

    @overload
    def get_fact(self, fact: str, default: Any = None) -> Any: ...
    @overload
    def get_fact(self, fact: Fact[Kept]) -> Kept | None: ...
    @overload
    def get_fact(self, fact: Fact[Kept], default: Kept) -> Kept: ...
    def get_fact(self, fact: Fact[Kept] | str, default: Any = None) -> Any:
        """The value of a fact, or the default if there is none."""
        fact = named(fact) if isinstance(fact, str) else fact
        rows = self._read_rows("SELECT value FROM facts WHERE key = ?", (fact.key,))
        with readable_errors(self.path):
            return fact.parse(rows[0][0]) if rows else default

    def facts(self) -> dict[str, Any]:
        """All facts by name."""
        rows = self._read_rows("SELECT key, value FROM facts ORDER BY key")
        with readable_errors(self.path):
            return {key: named(key).parse(value) for key, value in rows}

    def candidates(self) -> list[Candidate]:
        """Every candidate by id, with its evaluation if there is one."""
        rows = self._read_rows(
            f"SELECT {_CANDIDATE_COLUMNS}, {_EVALUATION_COLUMNS} "
            "FROM candidates LEFT JOIN evaluations USING (genome) ORDER BY candidates.id"
        )
        candidates = []
        with readable_errors(self.path):
            for id_, generation, packed, num_genes, operator, parents, *rest in rows:
                genome = unpack_genome(packed, num_genes)
                evaluation = _evaluation_of_row(genome, rest) if rest[0] else None
                ids = _parents_of_text(id_, parents)
                candidates.append(Candidate(id_, generation, genome, evaluation, operator, ids))
        return candidates

    def evaluations(self) -> list[Evaluation]:
        """Every evaluation, in the order in which they were recorded."""
        rows = self._read_rows(f"SELECT genome, {_EVALUATION_COLUMNS} FROM evaluations ORDER BY rowid")
        with readable_errors(self.path):
            return [_evaluation_of_row(unpack_genome(packed, rest[0]), rest) for packed, *rest in rows]

    def picks(self) -> dict[int, dict[str, int]]:
        """The candidate that has each role, by generation."""
        picks: dict[int, dict[str, int]] = {}
        rows = self._read_rows("SELECT generation, role, candidate_id FROM picks ORDER BY generation, role")
        for generation, role, id_ in rows:
            picks.setdefault(generation, {})[role] = id_
        return picks

    def epochs(self, solution: str | None = None) -> list[EpochRow]:
        """The epochs of one solution, or of all, in order."""
        sql = f"SELECT {_EPOCH} FROM epochs WHERE ?1 IS NULL OR solution = ?1 ORDER BY solution, epoch"
        return [EpochRow(*row) for row in self._read_rows(sql, (solution,))]

    def snapshot(self) -> dict[str, Any]:
        """Candidates, picks, epochs and facts of one instant, by these names."""
        with readable_errors(self.path):
            # A deferred transaction makes all reads see the same state without blocking the writer.
            self._connection.execute("BEGIN DEFERRED")
            try:
                return {
                    "candidates": self.candidates(),
                    "picks": self.picks(),
                    "epochs": self.epochs(),
                    "facts": self.facts(),
                }
            finally:
                self._connection.execute("ROLLBACK")

    def _read_rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with readable_errors(self.path):
            return self._connection.execute(sql, values).fetchall()

    def _write_rows(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with readable_errors(self.path), transaction(self._connection):
            self._connection.executemany(sql, rows)


def _question_marks(row: Sequence[Any]) -> str:
    return ", ".join("?" * len(row))


def _candidate_row(candidate: Candidate) -> tuple[Any, ...]:
    parents = ",".join(map(str, candidate.parents))
    packed, num_genes = pack_genome(candidate.genome), len(candidate.genome)
    return candidate.id, candidate.generation, packed, num_genes, candidate.operator, parents


def _parents_of_text(id_: int, text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"([0-9]{1,18}(,[0-9]{1,18})*)?", text):
        raise RunError(f"the parents of candidate {id_} must be numbers joined by commas, got {text[:80]!r}")
    return tuple(map(int, text.split(","))) if text else ()


def _evaluation_of_row(genome: Genome, row: Sequence[Any]) -> Evaluation:
    return Evaluation(genome=genome, **dict(zip(_EVALUATION[1:], row[1:], strict=True)))
