"""PostgreSQL: many workers on one server.

A connection pooler in between may run each transaction in another session (PgBouncer's
`pool_mode = transaction`). Settings of a session are lost there, or reach other clients:
settings, prepared statements, LISTEN. A connection through a pooler does without: settings are sent
with each transaction, statements are sent whole, and polling replaces notifications.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import psycopg
from psycopg import conninfo, pq

from agent.store.db.database import (
    CommitUnknownError,
    Connection,
    DeferredRows,
    Role,
    Row,
    StoreError,
)
from agent.store.db.dialect import POSTGRESQL, Fault, postgresql_fault
from agent.store.db.pg_pipeline import Exchange, PgPipeline, UnstorableError, WireError

CHANNEL: Final = "agent_work"
_CONNECT_SECONDS: Final = 10

# A plan is kept for the life of the connection. One that is made while the tables are small would
# scan and hash them later too; every hot statement has its index.
_WRITER_SETTINGS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
# Readers ask for much that has no index of its own. Their plans are made for the tables as they are.
_READER_SETTINGS: Final = {"plan_cache_mode": "force_custom_plan"}


class PostgresConnection(Connection):
    """A connection to a server, in autocommit but for its transactions."""

    sql = POSTGRESQL
    can_assume = True

    def __init__(self, url: str, role: Role, timeout_seconds: float) -> None:
        self.role = role
        self._is_deferring = False
        self._where = "PostgreSQL"
        timeout_ms = int(timeout_seconds * 1000)
        try:
            self._where = _describe(url)
            self._raw = psycopg.connect(
                url,
                autocommit=True,
                **_unless_given(
                    url,
                    connect_timeout=_CONNECT_SECONDS,
                    tcp_user_timeout=timeout_ms,
                    keepalives_idle=max(1, int(timeout_seconds / 2)),
                    keepalives_interval=max(1, int(timeout_seconds / 6)),
                    keepalives_count=3,
                    application_name=f"agent {role}",
                    client_encoding="UTF8",
                ),
            )
        except (psycopg.Error, UnicodeError) as error:
            # A refused connection has a SQLSTATE only if a server answered at all.
            fault = postgresql_fault(getattr(error, "sqlstate", None))
            reason = " ".join(str(error).split())
            raise StoreError(fault, f"cannot connect to {self._where}: {reason}") from error
        try:
            settings = _settings(role, timeout_ms)
            self.is_pooled = not self._set_for_session(settings)
            self._local_settings = f"SELECT {_set_config(settings, is_local=True)}"
            self._wire = PgPipeline(self._raw, can_prepare=not self.is_pooled)
            if role == "listener" and not self.is_pooled:
                self.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as error:
            self._raw.close()
            fault = postgresql_fault(error.sqlstate)
            raise StoreError(fault, f"{self._where} refused our settings: {error}") from error
        except BaseException:
            self._raw.close()
            raise

    def _set_for_session(self, settings: dict[str, str]) -> bool:
        """Change the session's settings unless there is a pooler.

        A server reports the id of its own process when a client connects; a pooler reports an id
        that does not exist on the server. One statement checks and sets, since two might run in
        different sessions.
        """
        cursor = self._raw.execute(
            f"SELECT {_set_config(settings, is_local=False)}"
            f" WHERE pg_backend_pid() = {self._raw.pgconn.backend_pid}".encode(),
            prepare=False,
        )
        return cursor.fetchone() is not None

    def query(self, sql: str, /, **params: Any) -> list[Row]:
        wire = self._wire
        try:
            if self.is_pooled:
                self._queue_settings()
            wire.queue(sql, params)
            return wire.rows(wire.flush()[-1])
        except (WireError, UnstorableError, UnicodeEncodeError, KeyError) as error:
            self._fail(error)

    def execute(self, sql: str, /, **params: Any) -> int:
        wire = self._wire
        try:
            if self.is_pooled:
                self._queue_settings()
            wire.queue(sql, params)
            if self._is_deferring:
                return 0
            return wire.flush()[-1].command_tuples or 0
        except (WireError, UnstorableError, UnicodeEncodeError, KeyError) as error:
            self._fail(error)

    def query_each(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Row]]:
        if not statements:
            return []
        wire = self._wire
        try:
            if self.is_pooled:
                self._queue_settings()
            for sql, params in statements:
                wire.queue(sql, params)
            return [wire.rows(result) for result in wire.flush()[-len(statements) :]]
        except (WireError, UnstorableError, UnicodeEncodeError, KeyError) as error:
            self._fail(error)

    def later(self, sql: str, /, **params: Any) -> DeferredRows:
        later = DeferredRows()
        self._queue(sql, params, later)
        return later

    def defer(self, sql: str, /, **params: Any) -> None:
        self._queue(sql, params)

    def _queue(self, sql: str, params: dict[str, Any], later: DeferredRows | None = None) -> None:
        try:
            if self.is_pooled:
                self._queue_settings()
            self._wire.queue(sql, params, later)
            if not self.in_transaction:
                self._wire.flush()
        except (WireError, UnstorableError, UnicodeEncodeError, KeyError) as error:
            self._fail(error)

    def _queue_settings(self) -> None:
        """Behind a pooler, send the settings with a statement outside a transaction."""
        if not self.in_transaction and not self._wire.has_queued:
            self._wire.queue(self._local_settings, {})

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False
        if not self.in_transaction:
            self._flush()

    def lock_timeout(self, timeout_ms: int) -> None:
        self.defer("SELECT set_config('lock_timeout', :timeout, true)", timeout=f"{timeout_ms}ms")

    def notify(self) -> None:
        self.defer(f"NOTIFY {CHANNEL}")

    def wait_for_notify(self, timeout_seconds: float) -> bool:
        try:
            # Behind a pooler there are no notifications: the caller polls after each wait.
            return self._wire.wait(timeout_seconds) or self.is_pooled
        except WireError as error:
            self._fail(error)

    def close(self) -> None:
        self.in_transaction = False
        self._raw.close()

    def _begin(self) -> None:
        self._start("BEGIN")

    def _begin_snapshot(self) -> None:
        self._start("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _start(self, sql: str) -> None:
        # Queued only: it is sent with the first statement.
        try:
            self._wire.queue(sql, {})
            if self.is_pooled:
                self._wire.queue(self._local_settings, {})
        except WireError as error:
            self._fail(error)
        self.in_transaction = True

    def _commit(self) -> None:
        self.send_commit()()

    def send_commit(self) -> Callable[[], None]:
        try:
            self._wire.queue("COMMIT", {})
            exchange = self._wire.send()
        except WireError as error:
            self._end_failed()
            self._fail(error, at_commit=True)
        self.in_transaction = False
        return lambda: self._await_commit(exchange)

    def _await_commit(self, exchange: Exchange) -> None:
        try:
            answer = self._wire.collect(exchange)[-1].command_status
        except WireError as error:
            self._end_failed()
            self._fail(error, at_commit=True)
        if answer != b"COMMIT":
            raise StoreError(
                Fault.DEFECT, "an error inside the transaction was ignored: it was rolled back"
            )

    def _rollback(self) -> None:
        self.in_transaction = False
        try:
            self._wire.queue("ROLLBACK", {})
            self._wire.flush()
        except WireError as error:
            # A lost connection has rolled back; a queued statement may fail here first.
            if error.sqlstate is not None:
                self._end_failed()

    def _end_failed(self) -> None:
        """Roll a failed transaction back, so that the connection can be used again."""
        self.in_transaction = False
        try:
            self._wire.queue("ROLLBACK", {})
            self._wire.flush()
        except WireError:
            pass

    def _flush(self) -> None:
        if self._wire.has_queued:
            try:
                self._wire.flush()
            except WireError as error:
                self._fail(error)

    def _fail(self, error: Exception, *, at_commit: bool = False) -> NoReturn:
        if isinstance(error, UnstorableError | UnicodeEncodeError):
            raise StoreError(Fault.DATA, f"a value cannot be stored: {error}") from error
        if not isinstance(error, WireError):
            raise StoreError(Fault.DEFECT, f"a parameter is missing: {error}") from error
        fault = postgresql_fault(error.sqlstate)
        message = f"{self._where}: {error}"
        if at_commit and fault in (Fault.LOST, Fault.CORRUPT):
            raise CommitUnknownError(fault, message) from error
        raise StoreError(fault, message) from error


def is_starting(url: str, *, was_starting: bool) -> bool:
    """Whether a server rejects connections because it starts; one that did may be silent for a moment."""
    given = _unless_given(url, connect_timeout=_CONNECT_SECONDS)
    state = pq.PGconn.ping(conninfo.make_conninfo(url, **given).encode())
    return state == pq.Ping.REJECT or (was_starting and state == pq.Ping.NO_RESPONSE)


def environment(url: str) -> dict[str, str]:
    """Return a URL as the environment variables that PostgreSQL's own programs read."""
    return {
        option.envvar.decode(): option.val.decode()
        for option in pq.Conninfo.parse(url.encode())
        if option.envvar is not None and option.val is not None
    }


def _settings(role: Role, timeout_ms: int) -> dict[str, str]:
    common = {
        "jit": "off",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "idle_in_transaction_session_timeout": f"{timeout_ms}ms",
    }
    is_writer = role in ("worker", "writer")
    return common | (_WRITER_SETTINGS if is_writer else _READER_SETTINGS)


def _set_config(settings: dict[str, str], *, is_local: bool) -> str:
    kind = "true" if is_local else "false"
    return ", ".join(f"set_config('{name}', '{value}', {kind})" for name, value in settings.items())


def _describe(url: str) -> str:
    """Return the name of a server and its database for a person, without the password."""
    parts = conninfo.conninfo_to_dict(url)
    host = parts.get("host") or "localhost"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"PostgreSQL at {host}{port}/{parts.get('dbname') or parts.get('user') or ''}"


def _unless_given(url: str, **defaults: Any) -> dict[str, Any]:
    parts = conninfo.conninfo_to_dict(url)
    return {name: value for name, value in defaults.items() if name not in parts}
