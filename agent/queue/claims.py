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
        self._unanswered: Document | None = None
        """The claim whose answer has not come: it may have got leases."""
        self._has_answered = False

    def claim(self, limit: int, stop: threading.Event, *, is_waiting: bool) -> list[Document]:
        """Return claimed work; nothing if none came within half a minute, or when stopped."""
        wait = _WAIT_SECONDS if is_waiting else 0

        def notify(problem: UnavailableError, failures: int) -> None:
            # With the longest delay, once in about five minutes.
            if (failures == 1 or failures % 32 == 0) and not stop.is_set():
                log.warning("no work can be claimed, trying again: %s", problem)

        # The token makes a repetition return the leases of the first.
        limit = min(limit, _MOST_AT_ONCE)
        asked = {**self._request, "limit": limit, "wait": wait, "client_token": new_id()}
        self._unanswered = asked
        try:
            answer = self._connection.repeat(
                lambda: self._send(asked, wait), wait=stop.wait, notify=notify
            )
        except UnavailableError:
            return []
        self._unanswered = None
        found: list[Document] = answer["work"]
        return found

    def interrupt(self) -> None:
        """End a claim that waits for work."""
        self._connection.interrupt()

    def give_back(self) -> None:
        """Release what a claim got whose answer did not come, and disconnect."""
        asked, self._unanswered = self._unanswered, None
        try:
            if asked is not None:
                answer = self._post({**asked, "wait": 0})
                for work in answer["work"]:
                    self._connection.post(
                        f"work/{work['lease_id']}/release", {"reason": "the worker is stopping"}
                    )
        except QueueError as problem:
            log.debug("the last claim stays without an answer: %s", problem)
        finally:
            self._connection.close()

    def _post(self, document: Document) -> Any:
        return self._connection.post("work/claim", document, timeout_seconds=_GIVE_BACK_SECONDS)

    def _send(self, document: Document, wait: int) -> Any:
        try:
            answer = self._connection.post(
                "work/claim", document, timeout_seconds=wait + ANSWER_SECONDS
            )
        except UnavailableError:
            raise
        except QueueError as problem:
            if self._has_answered and problem.status in _NOT_ALLOWED:
                # The token worked before: it may be about to be replaced.
                raise UnavailableError(str(problem), status=problem.status) from None
            raise
        if not self._has_answered:
            log.info("connected to the agent at %s", self._connection.url)
        self._has_answered = True
        return answer
