"""The differences between SQLite and PostgreSQL: words of SQL, parameters, and classes of errors.

SQL is written once, with `:name` parameters; where the databases differ it takes a word from `Sql`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Final, Literal

from agent.core.quick_classes.quick_dataclasses import dataclass

ColumnType = Literal["text", "int", "float"]


class Fault(StrEnum):
    """Why a statement failed; the caller's reaction depends on it."""

    DATA = "data"
    """The row itself is refused: a retry fails again."""
    BUSY = "busy"
    """Another transaction holds a lock: retry."""
    FULL = "full"
    """No space is left, on disk or in memory."""
    READONLY = "readonly"
    """This user cannot write the database."""
    STALE = "stale"
    """Rows that the transaction relied on have changed: read them and begin again."""
    LOST = "lost"
    """The database cannot be reached, or the connection is lost."""
    CORRUPT = "corrupt"
    """The file or the disk is damaged: stop."""
    REPLACED = "replaced"
    """The opened file was deleted or replaced: stop."""
    UNREACHABLE = "unreachable"
    """A store outside the database does not answer; the database itself works."""
    DEFECT = "defect"
    """The statement or its use is wrong: a defect of the agent, or an unknown schema."""

    @property
    def is_transient(self) -> bool:
        """Whether the same transaction may succeed later, without anything being repaired."""
        return self in TRANSIENT_FAULTS


TRANSIENT_FAULTS: Final = frozenset({Fault.BUSY, Fault.LOST, Fault.FULL})


@dataclass(frozen=True, slots=True, eq=False)
class Sql:
    """The words of one dialect; there is one object per dialect, a quick key for caches."""

    name: Literal["sqlite", "postgresql"]
    lock: str
    """Ends a SELECT that locks its rows and waits for them."""
    skip_locked: str
    """Ends a SELECT that locks its rows and skips those that other transactions have locked."""
    xid: str
    """The id of the writing transaction, as events store it."""
    now_us: str
    """The database's clock in microseconds since 1970, not the start of the transaction."""
    least: str
    """The smallest of several values that are not null."""
    greatest: str
    """The largest of several values that are not null."""
    position: str
    """The position of a text in another, from 1; 0 if it does not occur."""
    like_any_case: str
    """LIKE that ignores the case of ASCII letters at least."""
    each: str = "jsonb_each"
    """SQLite's table of an array's members; the binary one is twice as fast but newer."""

    def rows(self, *, rows_from: str = "rows", **columns: ColumnType) -> str:
        """Return a subselect `r` over the JSON array of arrays bound as `:rows`.

        Members that are JSON themselves are passed as strings: the two databases would write nested
        arrays and objects differently.
        """
        pick = self._pick_sqlite if self.name == "sqlite" else self._pick_postgresql
        picked = ", ".join(pick(place, *column) for place, column in enumerate(columns.items()))
        if self.name == "sqlite":
            return f"(SELECT {picked} FROM {self.each}(:{rows_from})) AS r"
        members = f"jsonb_array_elements(CAST(:{rows_from} AS jsonb))"
        return f"(SELECT {picked} FROM {members} AS v) AS r"

    def beyond_ascii(self, column: str) -> str:
        """Return a condition: whether a text has characters beyond ASCII."""
        octets = (
            f"length(CAST({column} AS BLOB))"
            if self.name == "sqlite"
            else f"octet_length({column})"
        )
        return f"{octets} <> length({column})"

    def ids(self, name: str = "ids") -> str:
        """Return a subselect of the strings in the JSON array bound as `:ids`."""
        if self.name == "sqlite":
            return f"(SELECT value FROM {self.each}(:{name}))"
        return f"(SELECT jsonb_array_elements_text(CAST(:{name} AS jsonb)))"

    @staticmethod
    def _pick_sqlite(place: int, column: str, _type: ColumnType) -> str:
        return f'value ->> {place} AS "{column}"'

    @staticmethod
    def _pick_postgresql(place: int, column: str, column_type: ColumnType) -> str:
        return f'(v ->> {place})::{_POSTGRESQL_TYPES[column_type]} AS "{column}"'


_POSTGRESQL_TYPES: Final[Mapping[ColumnType, str]] = {
    "text": "text",
    "int": "bigint",
    "float": "double precision",
}

SQLITE: Final = Sql(
    name="sqlite",
    lock="",
    skip_locked="",
    xid="0",
    now_us="CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)",
    least="min",
    greatest="max",
    position="instr",
    like_any_case="LIKE",
)

POSTGRESQL: Final = Sql(
    name="postgresql",
    lock="FOR NO KEY UPDATE",
    skip_locked="FOR NO KEY UPDATE SKIP LOCKED",
    xid="pg_current_xact_id()::text::bigint",
    now_us="(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    least="LEAST",
    greatest="GREATEST",
    position="strpos",
    like_any_case="ILIKE",
)

# Quoted texts, names and casts come first: their colons start no parameter.
_PARAMETERS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|::|:([a-zA-Z_]\w*)")


@cache
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return the SQL with PostgreSQL's own `$1` parameters, and the names in their order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return match.group()
        return f"${names.setdefault(name, len(names) + 1)}"

    return _PARAMETERS.sub(number, sql), tuple(names)


# The low byte of SQLite's result code.
_SQLITE_FAULTS: Final[Mapping[int, Fault]] = {
    3: Fault.READONLY,  # PERM
    5: Fault.BUSY,  # BUSY
    6: Fault.BUSY,  # LOCKED
    7: Fault.FULL,  # NOMEM
    8: Fault.READONLY,  # READONLY
    9: Fault.BUSY,  # INTERRUPT
    10: Fault.CORRUPT,  # IOERR
    11: Fault.CORRUPT,  # CORRUPT
    13: Fault.FULL,  # FULL
    14: Fault.LOST,  # CANTOPEN
    15: Fault.BUSY,  # PROTOCOL
    18: Fault.DATA,  # TOOBIG
    19: Fault.DATA,  # CONSTRAINT
    20: Fault.DATA,  # MISMATCH
    22: Fault.FULL,  # NOLFS
    23: Fault.READONLY,  # AUTH
    26: Fault.CORRUPT,  # NOTADB
}


def sqlite_fault(result_code: int | None) -> Fault:
    """Return the fault of an SQLite error, by its (extended) result code."""
    return _SQLITE_FAULTS.get((result_code or 0) & 0xFF, Fault.DEFECT)


# PostgreSQL's SQLSTATE, the most exact first: five characters, else the class of two.
_POSTGRESQL_FAULTS: Final[Mapping[str, Fault]] = {
    "22012": Fault.STALE,  # division_by_zero: raised by statements that find a changed row
    "25006": Fault.READONLY,  # read_only_sql_transaction
    "25P03": Fault.LOST,  # idle_in_transaction_session_timeout
    "25P04": Fault.LOST,  # transaction_timeout
    # A connection pooler that was not recognized has changed the session.
    "26000": Fault.LOST,  # invalid_sql_statement_name
    "42P05": Fault.LOST,  # duplicate_prepared_statement
    "42501": Fault.READONLY,  # insufficient_privilege
    "53300": Fault.LOST,  # too_many_connections
    "55P03": Fault.BUSY,  # lock_not_available
    "57014": Fault.BUSY,  # query_canceled
    "08": Fault.LOST,  # connection exception
    "22": Fault.DATA,  # data exception
    "23": Fault.DATA,  # integrity constraint violation
    "28": Fault.LOST,  # invalid authorization
    "3D": Fault.LOST,  # invalid catalog name: no such database
    "40": Fault.BUSY,  # transaction rollback: serialization failure, deadlock
    "53": Fault.FULL,  # insufficient resources
    "54": Fault.DATA,  # program limit exceeded
    "57": Fault.LOST,  # operator intervention: shutdown, starting up
    "58": Fault.CORRUPT,  # system error: the disk
}
_POSTGRESQL_CORRUPT: Final = frozenset({"XX001", "XX002"})


def postgresql_fault(sqlstate: str | None) -> Fault:
    """Return the fault of a PostgreSQL error, by its SQLSTATE; None means no connection."""
    if sqlstate is None:
        return Fault.LOST
    if sqlstate in _POSTGRESQL_CORRUPT:
        return Fault.CORRUPT
    exact = _POSTGRESQL_FAULTS.get(sqlstate)
    return exact or _POSTGRESQL_FAULTS.get(sqlstate[:2], Fault.DEFECT)
