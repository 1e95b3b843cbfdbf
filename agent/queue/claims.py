"""Claims: one request for all free slots, safe to repeat when its answer was lost."""

import logging
import threading
from typing import Any, Final

from agent.core.ids import new_id
from agent.queue.connection import ANSWER_SECONDS, Connection
from agent.queue.errors import QueueError, UnavailableError
from agent.queue.lease import Document

log = logging.getLogger("agent.queue")

_WAIT_SECONDS: Final = 25
_MOST_AT_ONCE: Final = 50
_NOT_ALLOWED: Final = (401, 403)
_GIVE_BACK_SECONDS: Final = 5.0


class Claims:
    """Claims the work of some queues, for one worker."""

    def __init__(
        self, connection: Connection, queues: list[str], worker: str, lease_seconds: float | None
    ) -> None:
        self._connection = connection
        self._request: Document = {"queues": queues, "worker": worker, "lease": lease_seconds}
        self._unanswered: dict[str, Document] = {}
        """Claims whose answers have not come, by their tokens: they may have got leases."""
        self._has_answered = False
        self._is_away = False

    def claim(self, limit: int, stop: threading.Event, *, is_waiting: bool) -> list[Document]:
        """Return claimed work; nothing if none came within half a minute, or when stopped."""
        wait = _WAIT_SECONDS if is_waiting else 0
        request = {**self._request, "limit": min(limit, _MOST_AT_ONCE), "client_token": new_id()}
        return self.repeat({**request, "wait": wait}, stop)

    def next_claim(self) -> Document:
        """Return a claim of one piece of work, to be sent with the end of another.

        The work begins with it: this worker is busy and goes on at once.
        """
        return {**self._request, "limit": 1, "start": True, "client_token": new_id()}

    def repeat(self, request: Document, stop: threading.Event) -> list[Document]:
        """Send a claim until it is answered; the token makes a repetition return the same leases."""

        def notify(error: UnavailableError, failures: int) -> None:
            # With the longest delay, once in about five minutes.
            if (failures == 1 or failures % 32 == 0) and not stop.is_set():
                self._is_away = True
                log.warning("no work can be claimed, trying again: %s", error)

        self._unanswered[request["client_token"]] = request
        try:
            answer = self._connection.repeat(
                lambda: self._send(request), wait=stop.wait, notify=notify
            )
        except UnavailableError:
            return []
        if self._is_away:
            self._is_away = False
            log.warning("the agent answers again")
        del self._unanswered[request["client_token"]]
        work: list[Document] = answer["work"]
        return work

    def interrupt(self) -> None:
        """End a claim that waits for work."""
        self._connection.interrupt()

    def give_back(self) -> None:
        """Release the work of claims whose answers were lost."""
        while self._unanswered:
            _, request = self._unanswered.popitem()
            try:
                answer = self._connection.post(
                    "work/claim", {**request, "wait": 0}, timeout_seconds=_GIVE_BACK_SECONDS
                )
                for work in answer["work"]:
                    self._connection.post(
                        f"work/{work['lease_id']}/release", {"reason": "the worker is stopping"}
                    )
            except QueueError as error:
                log.debug("a claim stays without an answer: %s", error)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _send(self, document: Document) -> Any:
        timeout = document.get("wait", 0) + ANSWER_SECONDS
        try:
            answer = self._connection.post("work/claim", document, timeout_seconds=timeout)
        except UnavailableError:
            raise
        except QueueError as error:
            if self._has_answered and error.status in _NOT_ALLOWED:
                # The token worked before: it may be about to be replaced.
                raise UnavailableError(str(error), status=error.status) from None
            raise
        if not self._has_answered:
            log.info("connected to the agent at %s", self._connection.url)
        self._has_answered = True
        return answer
