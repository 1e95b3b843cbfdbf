"""One lease: the requests under its id, what the agent last answered, and log lines on their way.

A lease has its own lock, since a handler and the thread of heartbeats both use it. Nothing here waits
for the agent for long: the caller repeats requests that must not be lost.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from agent.queue.connection import ANSWER_SECONDS, Connection
from agent.queue.errors import LeaseLostError, QueueError, UnavailableError

Document = dict[str, Any]

_LOG_CHARS: Final = 16_000
"""The most that one request carries; longer texts are cut into several."""
_MAX_PENDING_CHARS: Final = 1_000_000
"""While the agent does not answer, the newest lines up to this are kept."""


class Lease:
    """The right to work on one step."""

    def __init__(self, connection: Connection, document: Document) -> None:
        self._connection = connection
        self.document = document
        self.id: str = document["lease_id"]
        self.seconds: float = document["lease_seconds"]
        self.known_snapshot: str | None = document["snapshot"]
        self.newer_snapshot: str | None = None
        self.must_report_running: bool = document["state"] != "running"
        """Whether the handler may begin only once the agent has recorded that, in answer to `running`."""
        self.is_paused = False
        self.is_stopping = False
        self.end_reason: str | None = None
        """Why the result is not wanted any more; None while it is."""
        self.ended = threading.Event()
        """Set when the handler must end: its result is not wanted, or the worker waits no longer."""
        self._on_end: Callable[[], object] | None = None
        self._lines: deque[tuple[str, str]] = deque()
        self._pending_chars = 0
        self._dropped_chars = 0
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()

    def describe(self) -> str:
        """Return a name for messages."""
        return f"step {self.document['step']!r} of task {self.document['task']}"

    def send(
        self, verb: str, document: Document | None = None, *, timeout_seconds: float | None = None
    ) -> Document:
        """Send a request under this lease, once."""
        timeout = ANSWER_SECONDS if timeout_seconds is None else timeout_seconds
        answer: Document = self._connection.post(
            f"work/{self.id}/{verb}", document or {}, timeout_seconds=timeout
        )
        return answer

    def call(self, verb: str, document: Document) -> Document:
        """Send a request of the handler until it is answered, or until the lease is over."""
        answer: Document = self._connection.repeat(
            lambda: self._observed(verb, document), wait=self.ended.wait
        )
        return answer

    def read(self, path: str, **query: str | int | None) -> Document:
        """Read something of the task until it is answered, or until the lease is over."""

        def get() -> Document:
            try:
                answer: Document = self._connection.get(f"work/{self.id}/{path}", **query)
            except LeaseLostError as error:
                self.end(str(error))
                raise
            return answer

        answer: Document = self._connection.repeat(get, wait=self.ended.wait)
        return answer

    def knows_snapshot(self, snapshot_id: str) -> None:
        """Note the newest snapshot that the handler has appended or read."""
        self.known_snapshot, self.newer_snapshot = snapshot_id, None

    def heartbeat(self) -> None:
        """Extend the lease, once; note the agent's answer."""
        document = {"snapshot": self.known_snapshot}
        self._observed("heartbeat", document, timeout_seconds=min(ANSWER_SECONDS, self.seconds / 3))

    def _observed(
        self, verb: str, document: Document | None, *, timeout_seconds: float | None = None
    ) -> Document:
        """Send a request, and note the state of the lease from its answer."""
        try:
            state = self.send(verb, document, timeout_seconds=timeout_seconds)
        except LeaseLostError as error:
            self.end(str(error))
            raise
        action = state.get("action", "continue")
        self.is_paused = action == "pause"
        if action == "cancel":
            self.end("the step was cancelled")
        elif action == "changed" and state["snapshot"] != self.known_snapshot:
            # Else the handler appended it while the heartbeat was on its way.
            self.newer_snapshot = state["snapshot"]
        return state

    def end(self, reason: str) -> None:
        """Let the handler know that its result is not wanted any more."""
        if self.end_reason is None:
            self.end_reason = reason
        self.stop_now()

    def stop_now(self) -> None:
        """Let the handler know that it must end."""
        with self._lock:
            self.ended.set()
            notify, self._on_end = self._on_end, None
        if notify is not None:
            notify()

    def on_end(self, notify: Callable[[], object]) -> None:
        """Call a function once when the handler must end; now if that is already so."""
        with self._lock:
            if not self.ended.is_set():
                self._on_end = notify
                return
        notify()

    @property
    def stop_reason(self) -> str | None:
        """Why the handler was asked to end; None if it was not."""
        if self.end_reason is not None:
            return self.end_reason
        if self.is_paused:
            return "the task is paused"
        return "the worker is stopping" if self.is_stopping else None

    def log(self, text: str, stream: str) -> None:
        """Keep a text until the next flush; of too much, the newest."""
        with self._lock:
            self._lines.append((stream, text))
            self._pending_chars += len(text)
            while self._pending_chars > _MAX_PENDING_CHARS:
                _, oldest = self._lines.popleft()
                self._pending_chars -= len(oldest)
                self._dropped_chars += len(oldest)

    @property
    def has_log(self) -> bool:
        """Whether log lines wait."""
        return bool(self._lines)

    def flush_log(self) -> None:
        """Send the pending log lines; lines that cannot be sent wait for the next flush."""
        with self._flush_lock:
            while (piece := self._next_piece()) is not None:
                stream, text, count = piece
                try:
                    self._observed("log", {"stream": stream, "text": text})
                except UnavailableError:
                    raise
                except QueueError:
                    # A lease that is over takes no more lines, nor would it later.
                    self._taken(len(self._lines))
                    raise
                self._taken(count)

    def _next_piece(self) -> tuple[str, str, int] | None:
        """Return the stream, the text and the number of the next lines that one request carries."""
        with self._lock:
            if self._dropped_chars:
                self._lines.appendleft(
                    ("log", f"({self._dropped_chars} characters of output were lost)\n")
                )
                self._pending_chars += len(self._lines[0][1])
                self._dropped_chars = 0
            if not self._lines:
                return None
            stream, first = self._lines[0]
            if len(first) > _LOG_CHARS:
                self._lines[0] = (stream, first[_LOG_CHARS:])
                self._lines.appendleft((stream, first[:_LOG_CHARS]))
                return stream, first[:_LOG_CHARS], 1
            texts: list[str] = []
            size = 0
            for of, text in self._lines:
                size += len(text)
                if of != stream or size > _LOG_CHARS:
                    break
                texts.append(text)
            return stream, "".join(texts), len(texts)

    def _taken(self, count: int) -> None:
        with self._lock:
            for _ in range(min(count, len(self._lines))):
                self._pending_chars -= len(self._lines.popleft()[1])


def storable(text: str) -> str:
    """Return a text without characters that the agent cannot record: NUL and lone surrogates."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
