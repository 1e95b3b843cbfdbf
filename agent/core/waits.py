"""What a waiting step waits on: the types, and the one place that knows their stored form.

`steps.waiting_on` is JSON text with one key per type. When the step is woken, the result is added to
the same object: ``{"signal": "go"}`` becomes ``{"signal": "go", "value": 5}``. The forms never change:
workers of earlier versions read and write them too.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from agent.core.quick_classes.quick_dataclasses import dataclass, field

Json = Any


@dataclass(frozen=True, slots=True)
class Timer:
    """An instant, in microseconds."""

    at: int
    on_unknown: str | None = None
    """An effect may be under way until then; the policy that applies afterwards."""
    store_error: str | None = None
    """The artifact store did not answer, for this reason; the step tries again then."""
    turn_after: str | None = None
    """The task that answers first in the same conversation; the step looks again then."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A named signal to the task."""

    name: str


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """A child task that the transaction which parks the step is about to create."""

    workflow: str
    input: Json = None
    tool_use: int | None = None
    """The call of an agent's tool that the child is for."""


@dataclass(frozen=True, slots=True)
class Child:
    """The end of a child task; without an id, one that was refused."""

    task_id: str | None
    tool_use: int | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A person's answer."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A person's verdict on an effect whose result was never recorded."""

    call_id: str
    approval_id: str | None = None
    """The question about it; none where the call was resolved before the step was parked."""


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a group."""

    count: int


@dataclass(frozen=True, slots=True)
class Work:
    """The result of an external worker."""

    work_id: str
    queue: str = ""
    approval_id: str | None = None
    """The worker's question to a person, while that is open."""


Wait = Timer | Signal | ChildRequest | Child | Approval | UnknownCall | Items | Work

NEEDS_OUTSIDER: Final = (Approval, Signal, UnknownCall, Work)
"""Waits that only a person or another program can end."""

KEYS: Final[dict[type[Wait], str]] = {
    Timer: "timer",
    Signal: "signal",
    ChildRequest: "child",
    Child: "child",
    Approval: "approval",
    UnknownCall: "unknown",
    Items: "items",
    Work: "work",
}
"""The key of each type in its stored form."""


@dataclass(frozen=True, slots=True)
class EndedWait:
    """What a woken step had waited on, and what came of it."""

    on: Wait | None
    result: dict[str, Json] = field(default_factory=dict)
    """``value`` of a signal, ``status`` of a child, ``decision`` on an approval, ``expired``."""


def parse(text: str | None) -> Wait | None:
    """Read a stored wait; None where there is none, or its form is of a later version."""
    return None if text is None else from_document(json.loads(text))


def parse_ended(text: str | None) -> EndedWait | None:
    """Read a stored wait with the result that was added when the step was woken."""
    if text is None:
        return None
    document = json.loads(text)
    on = from_document(document)
    own = () if on is None else to_document(on)
    return EndedWait(on, {key: value for key, value in document.items() if key not in own})


def dump(on: Wait) -> str:
    """Write a wait in its stored form."""
    return json.dumps(to_document(on), ensure_ascii=False)


def dump_ended(text: str | None, result: Mapping[str, Json] | None) -> str:
    """Add a result to a stored wait."""
    stored = json.loads(text) if text is not None else {}
    return json.dumps({**stored, **(result or {})}, ensure_ascii=False)


def from_document(document: Mapping[str, Json]) -> Wait | None:
    """Read a wait from JSON, as it is stored and as documents of tasks and events carry it."""
    match document:
        case {"items": int(count)}:
            return Items(count)
        case {"work": str(work_id)}:
            return Work(work_id, str(document.get("queue", "")), document.get("approval"))
        case {"unknown": str(call_id)}:
            return UnknownCall(call_id, document.get("approval"))
        case {"approval": str(approval_id)}:
            return Approval(approval_id)
        case {"signal": str(name)}:
            return Signal(name)
        case {"timer": int(at)}:
            turn = document.get("turn_after")
            return Timer(at, document.get("in_doubt"), document.get("store"), turn)
        case {"child": {"workflow": str(workflow)} as request}:
            return ChildRequest(workflow, request.get("input"), request.get("for"))
        case {"child": str() | None as task_id}:
            return Child(task_id, document.get("for"))
    return None


def to_document(on: Wait) -> dict[str, Json]:
    """Return a wait as JSON: `from_document` of it gives the same wait."""
    match on:
        case Items(count):
            return {"items": count}
        case Work(work_id, queue, approval_id):
            return {"work": work_id, "queue": queue, **_given(approval=approval_id)}
        case UnknownCall(call_id, approval_id):
            return {"unknown": call_id, **_given(approval=approval_id)}
        case Approval(approval_id):
            return {"approval": approval_id}
        case Signal(name):
            return {"signal": name}
        case Timer(at, on_unknown, store_error, turn_after):
            also = _given(in_doubt=on_unknown, store=store_error, turn_after=turn_after)
            return {"timer": at, **also}
        case ChildRequest(workflow, given, tool_use):
            request = {"workflow": workflow, "input": given}
            return {"child": {**request, **_given(**{"for": tool_use})}}
        case Child(task_id, tool_use):
            return {"child": task_id, **_given(**{"for": tool_use})}


def headline(message: object) -> str:
    """Return the first paragraph of a question, as lists show it: the rest is shown with the question."""
    return " ".join(str(message or "").strip().partition("\n\n")[0].split())


def asks_person(on: Wait | None) -> bool:
    """Whether a person has to answer, or a program that no one has told the agent of."""
    if isinstance(on, Work):
        return on.approval_id is not None
    return isinstance(on, NEEDS_OUTSIDER)


def approval_of(on: Wait | None) -> str | None:
    """Return the approval that a step waits on: its own, about an unknown call, or of a worker."""
    return on.approval_id if isinstance(on, Approval | UnknownCall | Work) else None


def _given(**optional: Json) -> dict[str, Json]:
    return {key: value for key, value in optional.items() if value is not None}


def delay_words(delay: Mapping[str, Any]) -> str:
    """Say why a running step is delayed: a store does not answer, or a thread outlives its attempt."""
    if "thread" in delay:
        return str(delay["error"])
    return f"waits for the artifact store {delay.get('store')}"
