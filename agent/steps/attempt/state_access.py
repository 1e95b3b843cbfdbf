"""`ctx.state`: how a step's code reads and writes `state`.

Each use is a journal entry with a number, like a call: the value changes in the transaction that
records the answer. A later attempt runs the same code and gets the recorded answers, so it writes
nothing twice and reads what the first attempt read.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from agent.core.state_names import StateKey, find_name_problem
from agent.steps.attempt.recorded_calls.calls import Calls
from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.state_change import encode_value
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_types import Request
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.steps.types.state_values import StateOperation, Version
from agent.store.db.json_values import decode


class StateContext(Protocol):
    """The part of a context that `ctx.state` needs."""

    attempt_input: AttemptInput
    secrets: Secrets
    calls: Calls


class StateAccess:
    """`ctx.state` of a coroutine function."""

    def __init__(self, context: StateContext) -> None:
        self._context = context

    async def get(self, name: str, default: Json = None) -> Json:
        """Return a value, or the default if there is none."""
        answer = await self._operate(StateOperation("get", self._key(name)), effect=False)
        return answer.get("value", default)

    async def version(self, name: str) -> Version:
        """Return the version of a value, for `compare_and_set`; 0 if it was never written."""
        answer = await self._operate(StateOperation("get", self._key(name)), effect=False)
        return Version(answer["version"])

    async def set(self, name: str, value: Json) -> Version:
        """Write a value; return its new version."""
        operation = StateOperation("set", self._key(name), self._text(name, value))
        return Version((await self._operate(operation))["version"])

    async def compare_and_set(self, name: str, expected: Json, value: Json) -> bool:
        """Write a value if the current one is as expected; return whether it was written.

        `expected` is a value, None if there must be none, or what `version` returned.
        """
        text = self._text(name, value)
        operation = StateOperation("compare_and_set", self._key(name), text)
        if isinstance(expected, Version):
            operation.expected_version = int(expected)
        elif expected is not None:
            operation.expected_text = self._text(name, expected)
        return bool((await self._operate(operation))["written"])

    async def delete(self, name: str) -> None:
        """Delete a value; its versions count on if it is written again."""
        await self._operate(StateOperation("delete", self._key(name)))

    def _key(self, name: str) -> StateKey:
        problem = find_name_problem(name) if isinstance(name, str) else f"{name!r} is not a text"
        if problem is not None:
            raise DefiniteFailure(problem, code="bad_state", kind="input", may_retry=False)
        return (self._context.attempt_input.graph.state_scope(name), name)

    def _text(self, name: str, value: Json) -> str:
        return encode_value(name, value, self._context.secrets)

    async def _operate(self, operation: StateOperation, *, effect: bool = True) -> dict[str, Json]:
        scope, name = operation.key
        body: dict[str, Json] = {"scope": scope, "name": name}
        if operation.text is not None:
            body["value"] = decode(operation.text)
        if operation.expected_version is not None:
            body["expected_version"] = operation.expected_version
        elif operation.kind == "compare_and_set":
            body["expected"] = decode(operation.expected_text)
        request = Request(
            f"state.{operation.kind}",
            body,
            "ask" if effect else "retry",
            timeout_seconds=0,
            is_effect=effect,
        )
        answer: dict[str, Json] = await self._context.calls.operate(request, operation)
        return answer


class BlockingStateAccess:
    """`ctx.state` of a function that runs in a thread: the same methods, without `await`."""

    def __init__(
        self, state: StateAccess, wait_for: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._state = state
        self._wait_for = wait_for

    def get(self, name: str, default: Json = None) -> Json:
        """Return a value, or the default if there is none."""
        return self._wait_for(self._state.get(name, default))

    def version(self, name: str) -> Version:
        """Return the version of a value, for `compare_and_set`; 0 if it was never written."""
        version: Version = self._wait_for(self._state.version(name))
        return version

    def set(self, name: str, value: Json) -> Version:
        """Write a value; return its new version."""
        version: Version = self._wait_for(self._state.set(name, value))
        return version

    def compare_and_set(self, name: str, expected: Json, value: Json) -> bool:
        """Write a value if the current one is as expected; see `StateAccess.compare_and_set`."""
        is_written: bool = self._wait_for(self._state.compare_and_set(name, expected, value))
        return is_written

    def delete(self, name: str) -> None:
        """Delete a value; its versions count on if it is written again."""
        self._wait_for(self._state.delete(name))
