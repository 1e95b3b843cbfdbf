"""The connection of a process of the pool to its agent: questions, their answers, and functions to call."""

import itertools
import queue
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from agent.steps.attempt import containment
from agent.steps.executors import messages
from agent.steps.executors.messages import Message
from agent.steps.types.errors import Applied, EndAttempt
from agent.steps.types.outcome import Json, Paused
from agent.store.db.json_values import encode


class Link:
    """The connection to the agent. Any thread may ask; one thread reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Message]] = {}
        self.runs: queue.SimpleQueue[Message] = queue.SimpleQueue()
        """The functions to call."""

    def send(self, message: Message) -> None:
        """Send a message."""
        data = messages.encode(message)
        with self._lock:
            self._connection.sendall(data)

    def read_all(self, on_stop: Callable[[], None], on_end: Callable[[], None]) -> None:
        """Pass messages on until the agent has ended; runs in a thread of its own."""
        while (message := messages.read_blocking(self._connection)) is not None:
            if "run" in message:
                self.runs.put(message["run"])
            elif "stop" in message:
                on_stop()
            elif (waiting := self._waiting.get(message["to"])) is not None:
                waiting.put(message)
        on_end()

    def ask(
        self, method: str, *, reconcile: Callable[[Any], Any] | None = None, **arguments: Any
    ) -> Json:
        """Ask the agent and wait for its answer; meanwhile it may ask for a reconcile."""
        number = next(self._numbers)
        replies = self._waiting[number] = queue.SimpleQueue()
        try:
            self.send({"ask": number, "method": method, **arguments})
            while True:
                reply = replies.get()
                if "reconcile" not in reply:
                    return _answer(reply)
                assert reconcile is not None
                self.send(_verdict(number, reconcile, SimpleNamespace(**reply["reconcile"])))
        finally:
            del self._waiting[number]


def _answer(reply: Message) -> Json:
    problem = reply.get("problem")
    if problem is None:
        return reply.get("value")
    if problem["type"] == "end":
        # Only the agent knows the outcome; here it only leaves the step's code.
        raise EndAttempt(Paused())
    raise messages.known_problem(problem) or RuntimeError(problem.get("message", "failed"))


def _verdict(number: int, reconcile: Callable[[Any], Any], call: Any) -> Message:
    try:
        verdict = reconcile(call)
        if isinstance(verdict, Applied):
            encode(verdict.response, "what reconcile found")
            return {"verdict": number, "applied": True, "response": verdict.response}
        return {"verdict": number, "applied": verdict if isinstance(verdict, bool) else None}
    except BaseException as error:
        described = messages.describe(error)
        text = containment.describe_exception(error)
        return {"verdict": number, "problem": described or {"type": "code", "message": text}}
