"""A database whose Nth COMMIT fails, in every way in which commits can fail."""

from enum import StrEnum
from typing import Any

from agent.core.clock import SECOND, Clock
from agent.store.db.database import CommitUnknownError, Connection, Database, Role, StoreError
from agent.store.db.dialect import Fault


class Way(StrEnum):
    """How a COMMIT fails."""

    DIED_BEFORE = "the process died before it"
    DIED_AFTER = "it landed and the process died"
    REFUSED = "it was refused"
    LANDED_UNHEARD = "it landed and was reported as failed"
    LOST = "the connection was lost before it"
    LOST_UNHEARD = "not applied, and the acknowledgement was lost"
    CUT_OFF = "it landed and the connection was lost"


class Died(BaseException):
    """The process has ended: none of its code runs any more."""


class HandClock(Clock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_us = 0

    def now(self) -> int:
        return super().now() + self._skipped_us

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self._skipped_us += int(seconds * SECOND)


class FaultyDatabase(Database):
    """One process's view of a database; the process ends when a commit kills it."""

    def __init__(self, url: str, clock: Clock, at: int | None, way: Way) -> None:
        super().__init__(url, clock=clock)
        self.at = at
        self.way = way
        self.commits = 0
        self.is_dead = False
        self.has_happened = False

    def connect(self, role: Role = "writer") -> Connection:
        """Open a connection whose commits count for the plan."""
        if role == "listener":
            # It only listens: its failures affect no task.
            return super().connect(role)
        self.check_alive()
        connection = super().connect(role)
        _Sabotage(self, connection)
        return connection

    def check_alive(self) -> None:
        """Raise once the process has ended."""
        if self.is_dead:
            raise Died


class _Sabotage:
    """A proxy between a connection's users and its methods."""

    def __init__(self, database: FaultyDatabase, connection: Connection) -> None:
        self._database = database
        self._connection = connection
        self._is_cut = False
        self._commit = connection._commit
        for name in ("query", "execute", "query_each", "defer", "_begin", "_begin_snapshot"):
            setattr(connection, name, self._checked(getattr(connection, name)))
        connection._commit = self._commit_or_not  # type: ignore[method-assign]

    def _checked(self, method: Any) -> Any:
        def checked(*arguments: Any, **parameters: Any) -> Any:
            self._database.check_alive()
            if self._is_cut:
                raise StoreError(Fault.LOST, "the connection is gone")
            return method(*arguments, **parameters)

        return checked

    def _commit_or_not(self) -> None:
        database, connection = self._database, self._connection
        database.check_alive()
        if self._is_cut:
            raise CommitUnknownError(Fault.LOST, "the connection is gone")
        database.commits += 1
        if database.commits != database.at:
            self._commit()
            return
        database.has_happened = True
        match database.way:
            case Way.DIED_BEFORE:
                connection._rollback()
                database.is_dead = True
                raise Died
            case Way.DIED_AFTER:
                self._commit()
                database.is_dead = True
                raise Died
            case Way.REFUSED:
                connection._rollback()
                raise StoreError(Fault.BUSY, "the commit was refused")
            case Way.LANDED_UNHEARD:
                self._commit()
                self._is_cut = True
                raise CommitUnknownError(Fault.LOST, "the answer was lost")
            case Way.LOST:
                connection._rollback()
                self._is_cut = True
                raise StoreError(Fault.LOST, "the connection was lost")
            case Way.LOST_UNHEARD:
                connection._rollback()
                self._is_cut = True
                raise CommitUnknownError(Fault.LOST, "the answer was lost")
            case Way.CUT_OFF:
                self._commit()
                self._is_cut = True
