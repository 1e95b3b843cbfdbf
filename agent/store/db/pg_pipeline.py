"""PostgreSQL's protocol at the level of libpq: prepared statements, sent in batches.

Most of a statement's cost is its round trip. So the connection stays in pipeline mode: statements are
queued, sent together and answered together. BEGIN is sent with the first statement of a transaction,
and a statement whose result is not needed is sent with the next one. Each statement is parsed and
planned once per connection. The driver's own cursors do the same with twice the processor time.

Behind a connection pooler the next transaction may use another session, which knows none of the
prepared statements: there every statement is sent whole and parsed each time.
"""

import select
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from psycopg import Connection, Error, pq
from psycopg.adapt import Buffer, Loader, Transformer

from agent.store.db.database import DeferredRows, Row
from agent.store.db.dialect import numbered

_BIGINT: Final = 20
_DOUBLE: Final = 701
_BYTEA: Final = 17
_UNKNOWN: Final = 0

_COMMAND_OK: Final = pq.ExecStatus.COMMAND_OK
_TUPLES_OK: Final = pq.ExecStatus.TUPLES_OK
_PIPELINE_SYNC: Final = pq.ExecStatus.PIPELINE_SYNC
_SQLSTATE: Final = pq.DiagnosticField.SQLSTATE
_MESSAGE: Final = pq.DiagnosticField.MESSAGE_PRIMARY

_Statement = tuple[bytes, tuple[str, ...], dict[tuple[int, ...], bytes]]
_New = tuple[dict[tuple[int, ...], bytes], tuple[int, ...]]
"""Where a new statement's name is stored: the cache of its SQL, and the types of its parameters."""


class WireError(Exception):
    """The server refused a statement, or is gone (`sqlstate` is None)."""

    def __init__(self, sqlstate: str | None, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class UnstorableError(Exception):
    """A parameter has a value that PostgreSQL cannot store."""


def _encode(
    names: tuple[str, ...], params: dict[str, Any]
) -> tuple[list[bytes | None], tuple[int, ...], list[int] | None]:
    """Return the values of parameters as they are sent, their types, and their formats if any is binary."""
    values: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] | None = None
    for name in names:
        value = params[name]
        if isinstance(value, str):
            data = value.encode("utf-8")
            if b"\0" in data:
                raise UnstorableError(f"{name} contains a NUL character")
            values.append(data)
            types.append(_UNKNOWN)
        elif value is None:
            values.append(None)
            types.append(_UNKNOWN)
        elif isinstance(value, int):
            # Always as BIGINT: the server would guess INTEGER beside a small literal.
            values.append(b"%d" % value)
            types.append(_BIGINT)
        elif isinstance(value, bytes):
            values.append(value)
            types.append(_BYTEA)
            formats = formats or [0] * len(names)
            formats[len(values) - 1] = 1
        elif isinstance(value, float):
            values.append(repr(value).encode())
            types.append(_DOUBLE)
        else:
            raise UnstorableError(f"{name} is a {type(value).__name__}")
    return values, tuple(types), formats


class NumberLoader(Loader):
    """Reads sums as plain numbers, as SQLite returns them."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


class Exchange:
    """Statements that were sent together, and the server's answers."""

    __slots__ = ("answers", "sent")

    def __init__(self, sent: list[_New | DeferredRows | None]) -> None:
        self.sent = sent
        self.answers: list[pq.abc.PGresult] | None = None


class PgPipeline:
    """One connection's queue of statements, and their results."""

    def __init__(self, connection: "Connection[Any]", *, can_prepare: bool = True) -> None:
        connection.adapters.register_loader("numeric", NumberLoader)
        self._pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._statements: dict[str, _Statement] = {}
        # For each command without an answer: the statement that it prepares, or the receiver of its rows.
        self._sent: list[_New | DeferredRows | None] = []
        self._unanswered: deque[Exchange] = deque()
        self._is_broken = False
        self._can_prepare = can_prepare
        self._names = 0
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._pgconn.enter_pipeline_mode()

    @property
    def has_queued(self) -> bool:
        """Whether statements wait for the next `flush`."""
        return bool(self._sent)

    def queue(self, sql: str, params: dict[str, Any], later: DeferredRows | None = None) -> None:
        """Queue a statement for the next `flush`, which fills in its rows."""
        statement = self._statements.get(sql)
        if statement is None:
            text, names = numbered(sql)
            statement = self._statements[sql] = (text.encode("utf-8"), names, {})
        text_bytes, names, by_types = statement
        values, signature, formats = _encode(names, params)
        prepared = by_types.get(signature)
        pgconn = self._pgconn
        try:
            if not self._can_prepare:
                pgconn.send_query_params(text_bytes, values, signature, formats)
                self._sent.append(later)
                return
            if prepared is None:
                self._names += 1
                prepared = by_types[signature] = b"s%d" % self._names
                pgconn.send_prepare(prepared, text_bytes, signature)
                self._sent.append((by_types, signature))
            pgconn.send_query_prepared(prepared, values, formats)
            self._sent.append(later)
        except Error as error:
            raise self._lost(error) from error

    def flush(self) -> list[pq.abc.PGresult]:
        """Send the queued statements and return their results, or raise the first error."""
        return self.collect(self.send())

    def send(self) -> "Exchange":
        """Send the queued statements; the server works on them until their results are collected."""
        exchange = Exchange(self._sent)
        self._sent = []
        if self._is_broken:
            raise WireError(None, "the connection is closed")
        is_sent = False
        try:
            self._pgconn.pipeline_sync()
            if self._pgconn.flush():
                self._send_rest()
            is_sent = True
        except Error as error:
            raise self._lost(error) from error
        finally:
            self._is_broken = not is_sent
        self._unanswered.append(exchange)
        return exchange

    def collect(self, exchange: "Exchange") -> list[pq.abc.PGresult]:
        """Return the results of the sent statements, or raise the first error.

        Answers come in the order of sending: those of earlier exchanges are kept until they are
        collected.
        """
        while exchange.answers is None:
            if self._is_broken:
                raise WireError(None, "the connection is closed")
            is_whole = False
            try:
                self._unanswered[0].answers = self._receive()
                is_whole = True
            except Error as error:
                raise self._lost(error) from error
            finally:
                # After any interruption the answers of this exchange are still to come.
                self._is_broken = not is_whole
            self._unanswered.popleft()
        sent, answers = exchange.sent, exchange.answers
        is_done = all(answer.status in (_COMMAND_OK, _TUPLES_OK) for answer in answers)
        if is_done and len(answers) == len(sent):
            return list(self._told(sent, answers))
        self._forget(sent, answers)
        raise self._refusal(answers)

    def _told(
        self, sent: list[_New | DeferredRows | None], answers: list[pq.abc.PGresult]
    ) -> Iterator[pq.abc.PGresult]:
        """Return the statements' results, and fill in the rows of deferred ones."""
        for what, answer in zip(sent, answers, strict=True):
            if isinstance(what, tuple):
                continue
            if what is not None:
                what.rows = self.rows(answer)
            yield answer

    def rows(self, result: pq.abc.PGresult) -> list[Row]:
        """Read a result's rows."""
        count = result.ntuples
        if not count:
            return []
        transformer = self._transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, count, tuple)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a notification; several count as one."""
        pgconn = self._pgconn
        try:
            if pgconn.notifies() is None:
                if not self._poll.poll(timeout_seconds * 1000):
                    return False
                pgconn.consume_input()
                if pgconn.notifies() is None:
                    return False
            while pgconn.notifies() is not None:
                pass
        except Error as error:
            raise self._lost(error) from error
        return True

    def _send_rest(self) -> None:
        # Read meanwhile: a server that cannot send its answers stops reading.
        both = select.poll()
        both.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)
        while self._pgconn.flush():
            for _, happened in both.poll():
                if happened & ~select.POLLOUT:
                    self._pgconn.consume_input()

    def _receive(self) -> list[pq.abc.PGresult]:
        pgconn = self._pgconn
        answers: list[pq.abc.PGresult] = []
        while True:
            while pgconn.is_busy():
                self._poll.poll()
                pgconn.consume_input()
            answer = pgconn.get_result()
            if answer is None:
                if pgconn.status != pq.ConnStatus.OK:
                    return answers
            elif answer.status == _PIPELINE_SYNC:
                return answers
            else:
                answers.append(answer)

    def _forget(
        self,
        sent: list[_New | DeferredRows | None],
        answers: list[pq.abc.PGresult],
    ) -> None:
        """Drop the names of statements that the server has not prepared."""
        for place, what in enumerate(sent):
            is_done = place < len(answers) and answers[place].status == _COMMAND_OK
            if isinstance(what, tuple) and not is_done:
                del what[0][what[1]]

    def _refusal(self, answers: list[pq.abc.PGresult]) -> WireError:
        if self._pgconn.status != pq.ConnStatus.OK:
            self._is_broken = True
        for answer in answers:
            if answer.status == pq.ExecStatus.FATAL_ERROR:
                state = answer.error_field(_SQLSTATE)
                message = answer.error_field(_MESSAGE) or answer.error_message
                return WireError(
                    state.decode() if state else None, message.decode("utf-8", "replace").strip()
                )
        return WireError(None, "the server closed the connection")

    def _lost(self, error: Error) -> WireError:
        self._is_broken = True
        return WireError(None, str(error).strip())
