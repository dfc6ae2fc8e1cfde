"""Open a run's SQLite file safely: versions, migrations, and errors a user can act on.

A rollback journal rather than a write-ahead log: the history stays one file that can be copied and also
works on network drives, and a process killed at any instant leaves at most a journal, which the next one
to open the file rolls back. Writes are few, so their price does not matter.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from deeppruning.errors import DAMAGE, DeepPruningError, RunError
from deeppruning.system.files import refuse_linked_file

_VERSION_1 = (
    """CREATE TABLE evaluations (
        genome BLOB PRIMARY KEY, num_genes INTEGER NOT NULL, error REAL NOT NULL, cost REAL NOT NULL,
        flops INTEGER NOT NULL, params INTEGER NOT NULL, seconds REAL NOT NULL, worker TEXT NOT NULL,
        status TEXT NOT NULL, detail TEXT NOT NULL, finished_at TEXT NOT NULL)""",
    """CREATE TABLE candidates (
        id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, genome BLOB NOT NULL,
        num_genes INTEGER NOT NULL)""",
    """CREATE TABLE picks (
        generation INTEGER NOT NULL, role TEXT NOT NULL, candidate_id INTEGER NOT NULL,
        PRIMARY KEY (generation, role))""",
    """CREATE TABLE epochs (
        solution TEXT NOT NULL, epoch INTEGER NOT NULL, train_loss REAL, train_error REAL,
        test_error REAL, lr REAL NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (solution, epoch))""",
    "CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)

# Those that came to nothing have no objectives; before, they had figures that were made up.
_VERSION_2 = (
    "ALTER TABLE evaluations RENAME TO evaluations_1",
    """CREATE TABLE evaluations (
        genome BLOB PRIMARY KEY, num_genes INTEGER NOT NULL, error REAL, cost REAL,
        flops INTEGER NOT NULL, params INTEGER NOT NULL, seconds REAL NOT NULL, worker TEXT NOT NULL,
        status TEXT NOT NULL, detail TEXT NOT NULL, finished_at TEXT NOT NULL,
        CHECK ((error IS NOT NULL) = (status = 'ok') AND (cost IS NOT NULL) = (status = 'ok')))""",
    """INSERT INTO evaluations SELECT genome, num_genes, CASE status WHEN 'ok' THEN error END,
        CASE status WHEN 'ok' THEN cost END, flops, params, seconds, worker, status, detail, finished_at
        FROM evaluations_1 ORDER BY rowid""",
    "DROP TABLE evaluations_1",
)

# What a search selects on where that is not the error, and where candidates come from.
_VERSION_3 = (
    "ALTER TABLE evaluations ADD COLUMN score REAL",
    "ALTER TABLE candidates ADD COLUMN operator TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE candidates ADD COLUMN parents TEXT NOT NULL DEFAULT ''",
)

# Statements that lead to each version from the one before; a new version is added, never edited.
MIGRATIONS: dict[int, tuple[str, ...]] = {1: _VERSION_1, 2: _VERSION_2, 3: _VERSION_3}
CURRENT_VERSION = max(MIGRATIONS)
OLDEST_READABLE = 1  # what readers, who change nothing, understand as it is

_BUSY_SECONDS = 30.0
_BESIDE = ("-journal", "-wal", "-shm")  # what SQLite writes beside a database, or takes for its own


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection to the history at `path`, made or brought up to the current version as needed."""
    if read_only and not path.is_file():
        raise RunError(f"{path} does not exist; this run has not evaluated anything yet")
    for name in (path.name, *(f"{path.name}{ending}" for ending in _BESIDE)):
        refuse_linked_file(path.with_name(name))
    with readable_errors(path):
        # Readers too open for writing where they may: that lets them roll back what a killed writer left.
        mode = "rw" if read_only else "rwc"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
    try:
        with readable_errors(path):
            _prepare(connection, path, read_only)
    except BaseException:
        connection.close()
        raise
    return connection


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns: readers meet tables of older versions, which lack the newer ones."""
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _prepare(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    # Nothing in the file's own schema may call functions with effects; and none but ours is accepted.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA synchronous = EXTRA")
    refuse_strange_schema(connection, path)
    (problem,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if problem != "ok":
        raise sqlite3.DatabaseError(f"malformed: {problem}")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
        version = _version(connection, path)
        if version < OLDEST_READABLE:
            raise RunError(
                f"{path} is empty: nothing of the run is recorded; restore it from a copy, or resume the "
                "run, which begins its search again unless it has networks already"
            )
        refuse_strange_values(connection, path)
        return
    with transaction(connection):
        version = _version(connection, path)
        for step in range(version + 1, CURRENT_VERSION + 1):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {step}")
    refuse_strange_values(connection, path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= CURRENT_VERSION:
        raise RunError(
            f"{path} has format {version}, this program reads up to {CURRENT_VERSION}; "
            "upgrade deeppruning to open this run"
        )
    return version


def refuse_strange_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database whose tables are not those of its version, or that has views or triggers.

    A trigger would be obeyed when the run writes, and write what it likes.
    """
    version = _version(connection, path)
    with closing(sqlite3.connect(":memory:")) as model:
        for step in range(1, version + 1):
            for statement in MIGRATIONS[step]:
                model.execute(statement)
        expected, found = _schema(model), _schema(connection)
    if version == 0 and found:
        raise RunError(f"{path} is a database, but not the history of a run; choose another folder")
    strange = sorted(f"{kind} {name}" for kind, name, _ in expected ^ found)
    if strange:
        raise RunError(
            f"{path} is not as a run makes it: see its {strange[0]}; it was made or changed by another "
            "program, restore it from a copy or start a new run"
        )


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows}


def refuse_strange_values(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse rows whose values are not of their column's kind, which SQLite does not mind."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for _, column, kind, required, _, key in connection.execute(f"PRAGMA table_info({table})").fetchall():
            kinds = [_KINDS[kind]] + ([] if required or key else ["null"])
            marks = ", ".join("?" * len(kinds))
            sql = f"SELECT typeof({column}) FROM {table} WHERE typeof({column}) NOT IN ({marks}) LIMIT 1"
            for (strange,) in connection.execute(sql, kinds).fetchall():
                raise RunError(
                    f"{path} is damaged: a {column} of its {table} is of kind {strange}, not {kinds[0]}; "
                    "restore it from a copy or start a new run"
                )


_KINDS = {"INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "blob"}


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
        # Values that no record may have: raised where no one knows the file.
        if str(path) in str(error):
            raise
        raise RunError(f"{path} holds what no run records: {error}") from error
    except DAMAGE as error:
        raise RunError(
            f"{path} is damaged ({type(error).__name__}: {error}); restore it from a copy or start a new run"
        ) from error
    except sqlite3.Error as error:
        text = str(error)
        for sign, advice in _ADVICE.items():
            if sign in text:
                raise RunError(f"{path}: {advice} ({text})") from error
        raise RunError(f"{path}: the history cannot be used ({text})") from error


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
