"""A database by its address, and the interface of its connections."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from agent.core.clock import SECOND, Clock
from agent.core.files.database_file import Identity, identity_of
from agent.store.db.dialect import Fault, Sql
from agent.store.db.write_lock import WriteLock

if TYPE_CHECKING:
    from agent.store.artifacts.blobs import BlobStores
    from agent.store.db.sqlite import SqliteConnection

Role = Literal["worker", "writer", "reader", "listener"]
"""The purpose of a connection: a worker's commits, other writes, reads, waiting for notifications."""

Row = tuple[Any, ...]

_TOLERATED_US: Final = SECOND
"""How far the clocks of two machines may differ before this process sets its own."""


class StoreError(Exception):
    """The database failed or refused a statement; the message is for a person."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message


class CommitUnknownError(StoreError):
    """A COMMIT was sent and its acknowledgement was lost: it may have happened or not."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(fault, f"{message}; whether the change was made is not known")


def replaced(path: Path | None, kept_log: str | None = None) -> StoreError:
    """Return the error of a file that was deleted or replaced; `kept_log` is the new name of its log."""
    kept = "" if kept_log is None else f"; the log of the file that was there is kept as {kept_log}"
    return StoreError(
        Fault.REPLACED,
        f"{path} was deleted, moved or replaced while it was in use; nothing is written to it any"
        " more: put a backup there with `agent db restore FILE`, or put the right file back, and"
        f" start again{kept}",
    )


class DeferredRows:
    """The rows of a statement that is sent with others; set when the results arrive."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows = rows


class _Transaction:
    """The context manager of a transaction or a snapshot."""

    __slots__ = ("_connection", "_is_snapshot")

    def __init__(self, connection: "Connection", *, is_snapshot: bool) -> None:
        self._connection = connection
        self._is_snapshot = is_snapshot

    def __enter__(self) -> None:
        connection = self._connection
        if connection.in_transaction:
            raise StoreError(Fault.DEFECT, "a transaction is already open on this connection")
        if self._is_snapshot:
            connection._begin_snapshot()
        else:
            connection._begin()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is None and not self._connection.in_transaction:
            # Its COMMIT was sent ahead.
            return
        if error_type is None and not self._is_snapshot:
            self._connection._commit()
        else:
            self._connection._rollback()


class Connection(ABC):
    """One connection, used by one thread at a time."""

    sql: Sql
    role: Role
    in_transaction: bool = False
    is_pooled: bool = False
    """Whether a connection pooler may run each transaction in another session of the server."""
    can_assume: bool = False
    """Whether a transaction may rely on rows read before, and fail if they have changed."""
    database: "Database"
    """The database that it was opened from."""

    @abstractmethod
    def query(self, sql: str, /, **params: Any) -> list[Row]:
        """Run one statement and return its rows."""

    @abstractmethod
    def execute(self, sql: str, /, **params: Any) -> int:
        """Run one statement and return how many rows it changed."""

    @abstractmethod
    def query_each(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Row]]:
        """Run several statements, on PostgreSQL in one round trip, and return the rows of each.

        Each sees what those before it wrote.
        """

    @abstractmethod
    def defer(self, sql: str, /, **params: Any) -> None:
        """Run a statement whose result is not needed, with the next one or the COMMIT at the latest.

        On PostgreSQL it costs no round trip of its own, and that next statement raises its error. Outside a transaction it runs at once.
        """

    @abstractmethod
    def later(self, sql: str, /, **params: Any) -> DeferredRows:
        """Run a statement as `defer` does; its rows are there when the transaction is committed."""

    def transaction(self) -> _Transaction:
        """Return the context of a writing transaction: COMMIT at its end, ROLLBACK on an error."""
        return _Transaction(self, is_snapshot=False)

    def send_commit(self) -> Callable[[], None]:
        """End the open transaction, where possible without waiting for its COMMIT.

        The returned function waits for it, and raises the errors of a COMMIT. Before that, further
        transactions may be sent: they are answered in order, and fail if this one failed.
        """
        self._commit()
        return lambda: None

    def snapshot(self) -> _Transaction:
        """Return the context of a read-only transaction in which every query sees one state."""
        return _Transaction(self, is_snapshot=True)

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """Let every `execute` in this block be a `defer` on PostgreSQL; there its count is 0."""
        yield

    def mark(self) -> tuple[int, int] | None:
        """Return (a number that changes when another connection writes, transactions begun on this one).

        Call it inside a transaction; None where the database has no such number.
        """
        return None

    def check(self) -> None:
        """Raise `StoreError` unless this connection still reads the database that it was opened on."""
        self.query("SELECT 1")

    def check_file(self) -> None:  # noqa: B027  (only SQLite has a file to lose)
        """Raise `StoreError` if its file was deleted or replaced; only asks the file system."""

    @abstractmethod
    def lock_timeout(self, timeout_ms: int) -> None:
        """Bound how long this transaction waits for a row's lock; SQLite has no row locks."""

    @abstractmethod
    def notify(self) -> None:
        """Notify waiting listeners when this transaction commits; the notification may be lost."""

    @abstractmethod
    def wait_for_notify(self, timeout_seconds: float) -> bool:
        """Wait for a notification of another process; False when the time is over first."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, rolling back an open transaction; closing twice is harmless."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _begin_snapshot(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> None: ...


class Database:
    """One database by its address; connections are made from it."""

    def __init__(
        self,
        url: str,
        *,
        has_write_lock: bool = True,
        clock: Clock | None = None,
        timeout_seconds: float = 15.0,
    ) -> None:
        """Name a database: `sqlite:///relative`, `sqlite:////absolute` or `postgresql://…`.

        `timeout_seconds` bounds how long a network may be silent and a transaction idle; it must stay under a third of the lease. `has_write_lock=False` is
        for a SQLite file that no other process writes.
        """
        self.url = url
        self.clock = clock or Clock()
        self.path: Path | None = None
        self.directory: Path | None = None
        """The directory for files that belong to it: beside it, or as configured."""
        self.write_lock: WriteLock | None = None
        self.blob_stores: BlobStores | None = None
        """Where large values are kept outside it; read by `artifacts.blobs.stores_of`."""
        self.make_blob_stores: Callable[[], BlobStores] | None = None
        """Makes them when they are first read."""
        self._identity: Identity | None = None
        """The SQLite file of the first connection."""
        self._timeout_seconds = timeout_seconds
        scheme, separator, rest = url.partition("://")
        if separator and scheme in ("postgresql", "postgres"):
            self.is_sqlite = False
        elif separator and scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
            self.is_sqlite = True
            self.path = Path(rest[1:]).absolute()
            self.directory = self.path.parent
            # By the file's real path: a process that uses a symlink must take the same lock.
            real = Path(os.path.realpath(self.path))
            lock_file = real.with_name(real.name + ".gate")
            self.write_lock = WriteLock(lock_file) if has_write_lock else None
        else:
            raise StoreError(
                Fault.DEFECT,
                "the database's address must be sqlite:///PATH or postgresql://USER@HOST/NAME",
            )

    @property
    def sql(self) -> Sql:
        """The SQL dialect of this database."""
        if self.is_sqlite:
            from agent.store.db import sqlite_driver

            return sqlite_driver.driver().sql
        from agent.store.db.dialect import POSTGRESQL

        return POSTGRESQL

    def connect(self, role: Role = "writer") -> Connection:
        """Open a connection; the database must exist, and its schema is not checked."""
        # The drivers are imported here, so that a process pays only for the one it uses.
        connection: Connection
        if self.path is not None:
            from agent.store.db import sqlite

            self.check_file()
            connection = self._same(sqlite.SqliteConnection(self.path, role, self.write_lock))
        else:
            from agent.store.db import postgres

            connection = postgres.PostgresConnection(self.url, role, self._timeout_seconds)
        connection.database = self
        return connection

    def _same(self, connection: "SqliteConnection") -> "SqliteConnection":
        """Refuse a connection to another file than that of the first connection."""
        if self._identity is None:
            self._identity = connection.identity
        if self._identity != connection.identity:
            connection.close()
            raise replaced(self.path)
        return connection

    def check_file(self) -> None:
        """Raise `StoreError` if the SQLite file was deleted or replaced since it was opened."""
        if self.path is None or self._identity is None:
            return
        try:
            is_same = identity_of(self.path) == self._identity
        except OSError:
            is_same = False
        if not is_same:
            raise replaced(self.path)

    def write_mark(self) -> int:
        """Return a number that grows with every commit of a writer on SQLite; elsewhere 0."""
        return 0 if self.write_lock is None else self.write_lock.mark()

    def set_clock(self) -> None:
        """Set this process's clock to the database's, where that is another machine's."""
        if self.is_sqlite:
            return
        with self.connect("reader") as connection:
            # Twice, since the first answer includes the time to prepare the statement.
            for _ in range(2):
                ((now_us,),) = connection.query(f"SELECT {self.sql.now_us}")
                self.clock.set_to(now_us)

    def keep_clock(self, connection: "Connection") -> bool:
        """Set the clock again if it differs from the database's; return whether it did.

        One of the two clocks was set meanwhile: a worker whose clock differs would find work due too
        late or too early from then on.
        """
        if self.is_sqlite:
            return False
        before = self.clock.now()
        ((now_us,),) = connection.query(f"SELECT {self.sql.now_us}")
        after = self.clock.now()
        if before - _TOLERATED_US <= now_us <= after + _TOLERATED_US:
            return False
        self.clock.set_to(now_us)
        return True
