"""Open a run's SQLite file safely, with errors that a user can act on.

The journal is a rollback journal, not a write-ahead log: the history stays one file that can be copied and
works on network drives, and a process killed at any moment leaves at most a journal, which is rolled back
when the file is opened next. There are few writes, so their cost does not matter.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from deeppruning.errors import DAMAGE, DeepPruningError, RunError
from deeppruning.system.files import refuse_linked_file

FORMAT = 4  # of config.toml and of the history; runs of another format are not read

# Candidates that diverged or failed have neither error nor cost.
SCHEMA = (
    """CREATE TABLE evaluations (
        genome BLOB PRIMARY KEY, num_genes INTEGER NOT NULL, error REAL, cost REAL,
        flops INTEGER NOT NULL, params INTEGER NOT NULL, seconds REAL NOT NULL, worker TEXT NOT NULL,
        status TEXT NOT NULL, detail TEXT NOT NULL, finished_at TEXT NOT NULL, score REAL,
        CHECK ((error IS NOT NULL) = (status = 'ok') AND (cost IS NOT NULL) = (status = 'ok')))""",
    """CREATE TABLE candidates (
        id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, genome BLOB NOT NULL,
        num_genes INTEGER NOT NULL, operator TEXT NOT NULL, parents TEXT NOT NULL)""",
    """CREATE TABLE picks (
        generation INTEGER NOT NULL, role TEXT NOT NULL, candidate_id INTEGER NOT NULL,
        PRIMARY KEY (generation, role))""",
    """CREATE TABLE epochs (
        solution TEXT NOT NULL, epoch INTEGER NOT NULL, train_loss REAL, train_error REAL,
        test_error REAL, lr REAL NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (solution, epoch))""",
    "CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)

_BUSY_SECONDS = 30.0
_SIDE_FILES = ("-journal", "-wal", "-shm")  # what SQLite writes beside a database, and trusts


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection to the history at `path`, which is created unless `read_only`."""
    if read_only and not path.is_file():
        raise RunError(f"{path} does not exist; this run has not evaluated anything yet")
    for ending in ("", *_SIDE_FILES):
        refuse_linked_file(path.with_name(f"{path.name}{ending}"))
    with readable_errors(path):
        # Readers open for writing as well, so that they can roll back what a killed writer left.
        mode = "rw" if read_only else "rwc"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
    try:
        with readable_errors(path):
            _prepare_connection(connection, path, read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_format(path: Path, format_: int) -> None:
    """Raise unless a file has the format that this version writes."""
    if format_ != FORMAT:
        raise RunError(
            f"{path} has format {format_}, but this version reads format {FORMAT}: open it with "
            "the version of deeppruning that wrote it, or start a new run"
        )


def _prepare_connection(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    """Set SQLite up safely and check the file; a new one gets its tables."""
    # The file's own schema must not call functions with side effects.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA synchronous = EXTRA")
    is_empty = _check_schema(connection, path)
    (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise sqlite3.DatabaseError(f"malformed: {problem}")
    if is_empty and read_only:
        raise RunError(
            f"{path} is empty: nothing of the run is recorded; restore it from a copy, or resume the run, "
            "which begins its search again unless it has networks already"
        )
    if is_empty:
        with transaction(connection):
            _create_tables(connection)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    _check_values(connection, path)


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in SCHEMA:
        connection.execute(statement)


def _check_schema(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the database is new; refuse one of another format, or with other tables, views or triggers.

    A trigger would run whenever the run writes, and could write anything.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    schema = _schema_of(connection)
    if version == 0 and not schema:
        return True
    if version == 0:
        raise RunError(f"{path} is a database, but not the history of a run; choose another folder")
    refuse_format(path, version)
    with closing(sqlite3.connect(":memory:")) as model:
        _create_tables(model)
        strange = sorted(f"{kind} {name}" for kind, name, _ in _schema_of(model) ^ schema)
    if strange:
        raise RunError(
            f"{path} does not have the tables of a run (see its {strange[0]}): another program made or "
            "changed it; restore it from a copy or start a new run"
        )
    return False


def _schema_of(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows}


def _check_values(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse values that do not have the type of their column, which SQLite itself accepts."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for _, column, kind, required, _, key in connection.execute(f"PRAGMA table_info({table})").fetchall():
            kinds = [kind.lower()] + ([] if required or key else ["null"])
            marks = ", ".join("?" * len(kinds))
            sql = f"SELECT typeof({column}) FROM {table} WHERE typeof({column}) NOT IN ({marks}) LIMIT 1"
            for (strange,) in connection.execute(sql, kinds).fetchall():
                raise RunError(
                    f"{path} is damaged: a {column} of its {table} is of type {strange}, not {kinds[0]}; "
                    "restore it from a copy or start a new run"
                )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All statements inside take effect together or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into a RunError that says what to do."""
    try:
        yield
    except DeepPruningError as error:
        if str(path) in str(error) or f"{path.parent}{os.sep}" in str(error):  # it names its file already
            raise
        raise RunError(f"{path} has an invalid value: {error}") from error
    except DAMAGE as error:
        raise RunError(
            f"{path} is damaged ({type(error).__name__}: {error}); restore it from a copy or start a new run"
        ) from error
    except sqlite3.Error as error:
        text = str(error)
        advice = next(
            (advice for sign, advice in _ADVICE.items() if sign in text), "the history cannot be used"
        )
        raise RunError(f"{path}: {advice} ({text})") from error


_ADVICE = {
    "disk is full": "the disk is full; free some space and resume the run, nothing recorded so far is lost",
    "disk I/O error": "the disk refused to write or read; check its space, limits and health, then resume "
    "the run, nothing recorded so far is lost",
    "not a database": "the history is damaged or not a database; restore it from a copy or start a new run",
    "malformed": "the history is damaged; restore it from a copy or start a new run",
    "locked": "another process keeps the history busy; wait for it or stop it",
    "readonly": "the history cannot be written; check the permissions of the file and its folder",
    "unable to open": "the history cannot be opened; check the permissions of the file and its folder",
}
