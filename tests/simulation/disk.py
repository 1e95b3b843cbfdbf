"""A database file as simulated processes see it: commits fail in every possible way."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from agent.store.db.database import CommitUnknownError, Connection, Database, Role, StoreError
from agent.store.db.dialect import Fault
from agent.store.db.sqlite import SqliteConnection
from tests.simulation.loop import DiedError, Process, SimulatedLoop
from tests.simulation.nature import SimulatedClock

COMMIT_FAULTS = (
    "died before",
    "died after",
    "refused",
    "full",
    "landed unheard",
    "lost",
    "lost unheard",
    "cut off",
    "stopped after",
    "damaged",
    "damaged unheard",
)
"""How one COMMIT goes wrong; after those that end in `unheard` the result is unknown."""

CARRIED: Final = {
    "intent": "INSERT INTO tool_calls",
    "result": "UPDATE idempotency_outcomes",
    "task": "INSERT INTO tasks",
    "question": "INSERT INTO approvals",
    "change": "UPDATE steps",
    "death": "UPDATE workers SET dead = 1",
    "firing": "INSERT INTO firings",
    "state": "INSERT INTO state_history",
    "work": "UPDATE work ",
}
"""What a transaction may carry to the disk, and the statement that shows it."""

SLOW_SECONDS = 4.0
"""How long a slow disk may take for one commit: not as long as a lease."""


_TORN: Final = 0.05
"""How often a statement in a transaction finds its connection gone, in such weather."""
_BUSY: Final = 0.5

STOPPED_SECONDS = 20.0
"""How long a process stays stopped after a commit: until its effects have long been given up."""


class Weather:
    """The faults of the machine that last for a while, for all its processes."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._until: dict[str, float] = {}

    def set(self, kind: str, seconds: float) -> None:
        """Let a kind of fault last for some time from now."""
        self._until[kind] = self._loop.time() + seconds

    def has(self, kind: str) -> bool:
        """Whether that kind of fault lasts."""
        return self._until.get(kind, 0.0) > self._loop.time()

    def clear(self) -> None:
        """End all faults."""
        self._until.clear()


class SimulatedDatabase(Database):
    """One process's view of the file."""

    def __init__(
        self,
        url: str,
        clock: SimulatedClock,
        loop: SimulatedLoop,
        process: Process,
        weather: Weather,
    ) -> None:
        super().__init__(url, clock=clock)
        self.loop = loop
        self.process = process
        self.weather = weather
        self.commits = 0
        self.faults: dict[int, str] = {}
        self.strike: Callable[[str], str | None] = lambda _: None
        """Called for each kind of content of a commit; returns how the commit fails."""
        self.happened: Counter[str] = Counter()
        self._open: list[SimulatedConnection] = []
        self._mark = 0
        self._missed = 0

    def connect(self, role: Role = "writer") -> Connection:
        self.check_alive()
        if self.weather.has("lost"):
            self.happened["connection lost"] += 1
            raise StoreError(Fault.LOST, "the database cannot be reached")
        assert self.path is not None
        connection = SimulatedConnection(self, role)
        self._open.append(connection)
        return connection

    def write_mark(self) -> int:
        mark = super().write_mark()
        if not self.weather.has("deaf"):
            self._mark = self._missed = mark
        elif mark != self._missed:
            self._missed = mark
            self.happened["wake-up lost"] += 1
        return self._mark

    def is_struck_by(self, kind: str, often: float) -> bool:
        """Whether an intermittent fault, while it lasts, strikes here."""
        if not self.weather.has(kind) or self.loop.chance.random() >= often:
            return False
        self.happened[kind] += 1
        return True

    def check_alive(self) -> None:
        """Raise once the process has ended."""
        if self.process.is_dead:
            raise DiedError

    def pause(self) -> None:
        """Let other processes run between two transactions; on a slow disk, many of them."""
        if not self.weather.has("slow"):
            self.loop.pause()
            return
        self.happened["slow"] += 1
        self.loop.pause(self.loop.chance.uniform(0, SLOW_SECONDS))

    def die(self) -> None:
        """End the process; the system closes its files and rolls back what was not committed."""
        self.process.is_dead = True
        self.close_all()

    def close_all(self) -> None:
        """Close what is still open."""
        while self._open:
            self._open.pop().abandon()

    def fault_of_next_commit(self, carried: set[str]) -> str | None:
        """Count a commit, and return how it fails."""
        self.commits += 1
        fault = self.faults.pop(self.commits, None)
        for word in sorted(carried):
            fault = self.strike(word) or fault
        if fault is None and self.weather.has("full"):
            fault = "full"
        if fault is not None:
            self.happened[fault] += 1
        return fault


class SimulatedConnection(SqliteConnection):
    """A connection that may be lost, to a file that may refuse."""

    def __init__(self, database: SimulatedDatabase, role: Role) -> None:
        self._is_cut = False
        self._database = database
        self._carried: set[str] = set()
        assert database.path is not None
        super().__init__(database.path, role, database.write_lock)

    def query(self, sql: str, /, **params: Any) -> list[tuple[Any, ...]]:
        self._check()
        self._note(sql)
        return super().query(sql, **params)

    def execute(self, sql: str, /, **params: Any) -> int:
        self._check()
        self._note(sql)
        return super().execute(sql, **params)

    def query_each(self, statements: Any) -> list[list[tuple[Any, ...]]]:
        self._check()
        return super().query_each(statements)

    def defer(self, sql: str, /, **params: Any) -> None:
        self._check()
        self._note(sql)
        super().defer(sql, **params)

    def _note(self, sql: str) -> None:
        for word, beginning in CARRIED.items():
            if sql.startswith(beginning):
                self._carried.add(word)

    def close(self) -> None:
        if self in self._database._open:
            self._database._open.remove(self)
        super().close()

    def abandon(self) -> None:
        """Close as the system does for a process that has died."""
        self._is_cut = True
        super().close()

    def _check(self) -> None:
        self._database.check_alive()
        if self.in_transaction and self._database.is_struck_by("torn", _TORN):
            self._is_cut = True
        if self._database.weather.has("lost") and not self.in_transaction:
            self._is_cut = True
        if self._is_cut:
            raise StoreError(Fault.LOST, "the connection is gone")

    def _begin(self) -> None:
        self._database.pause()
        self._check()
        if self._database.is_struck_by("busy", _BUSY):
            raise StoreError(Fault.BUSY, "another process writes")
        self._carried = set()
        super()._begin()

    def _begin_snapshot(self) -> None:
        self._check()
        super()._begin_snapshot()

    def _commit(self) -> None:
        database = self._database
        database.check_alive()
        fault = database.fault_of_next_commit(self._carried)
        lands = fault in (
            None,
            "died after",
            "landed unheard",
            "cut off",
            "damaged unheard",
            "stopped after",
        )
        if lands:
            super()._commit()
        else:
            self._rollback()
        if fault is not None:
            self._fail_commit(fault)
        database.pause()
        database.check_alive()

    def _fail_commit(self, fault: str) -> None:
        database = self._database
        if fault.startswith("died"):
            database.die()
            raise DiedError
        if fault == "stopped after":
            database.process.stopped_until = database.loop.time() + STOPPED_SECONDS
            return
        self._is_cut = fault in ("landed unheard", "lost", "lost unheard", "cut off")
        if fault == "cut off":
            return
        message = f"the commit went wrong: {fault}"
        if fault == "damaged unheard":
            raise CommitUnknownError(Fault.CORRUPT, message)
        if fault.endswith("unheard"):
            raise CommitUnknownError(Fault.LOST, message)
        kinds = {"refused": Fault.BUSY, "full": Fault.FULL, "damaged": Fault.CORRUPT}
        raise StoreError(kinds.get(fault, Fault.LOST), message)
