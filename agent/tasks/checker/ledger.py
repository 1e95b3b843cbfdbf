"""The calls of one task: each has a row in the ledger, and its events lead to that row."""

from collections.abc import Iterator
from typing import Final

from agent.core.ids import idempotency_key
from agent.core.state_machine import CALL, CallStatus, ForbiddenMoveError, StepStatus, moved
from agent.store.read.audit.rows import AuditRows, CallFacts, EventFacts, StepFacts
from agent.tasks.checker.violation import Finding

_ONE_EFFECT: Final = frozenset({"http", "shell"})
"""Kinds of steps whose recorded calls are all effects."""


def check_calls(task: AuditRows) -> Iterator[Finding]:
    """Check that each call is intended once, resolved once, and repeated only if that is allowed."""
    steps = {step.id: step for step in task.steps}
    events, claimed = _index_events(task) if task.calls else ({}, {})
    known: dict[tuple[str, int], list[tuple[CallFacts, int | None]]] = {}
    for call in task.calls:
        step = steps.get(call.step_id)
        if step is None:
            yield Finding(f"call {call.id} belongs to a step that does not exist")
            continue
        own_events = events.get(call.id, [])
        earlier = known.setdefault((call.step_id, call.number), [])
        begun = claimed.get((call.step_id, call.attempt))
        sentences = [*_check_row(task, call, step), *_check_repetition(call, step, earlier, begun)]
        # Calls of attempt 0 were inherited from the task that this one retries.
        if call.attempt > 0:
            sentences += _check_history(call, own_events)
        earlier.append((call, _known_at(call, own_events)))
        for sentence in sentences:
            where = f"step {step.title}: call {call.action} of attempt {call.attempt}"
            yield Finding(f"{where} {sentence}", step.title)
    by_key = {call.idempotency_key: call for call in task.calls}
    for step in task.steps:
        if step.status == StepStatus.SUCCEEDED and step.idempotency_key is not None:
            by = by_key.get(step.idempotency_key)
            if by is None or by.step_id != step.id or by.status != CallStatus.SUCCEEDED:
                status = "not on record" if by is None else by.status
                yield Finding(f"step {step.title} succeeded by a call that is {status}", step.title)


def _index_events(
    task: AuditRows,
) -> tuple[dict[str, list[EventFacts]], dict[tuple[str | None, int | None], int]]:
    """Return the events of each call, and the number of each attempt's first claim."""
    events: dict[str, list[EventFacts]] = {}
    claimed: dict[tuple[str | None, int | None], int] = {}
    for event in task.events:
        if event.type.startswith("tool_call."):
            events.setdefault(str(event.document().get("call")), []).append(event)
        elif event.type == "step.claimed":
            claimed.setdefault((event.step_id, event.attempt), event.seq)
    return events, claimed


def _check_row(task: AuditRows, call: CallFacts, step: StepFacts) -> Iterator[str]:
    if call.status is None:
        yield "has no row in the ledger"
    elif call.attempt > 0 and (call.status == CallStatus.UNKNOWN) != (call.resolved_at is None):
        yield f"is {call.status} and resolved at {call.resolved_at}"
    key = idempotency_key(task.task.id, call.step_id, call.attempt, call.action, call.request_hash)
    if key != call.idempotency_key:
        yield "has a key that is not its own"
    if call.attempt > step.max_attempts:
        yield f"was begun, and {step.max_attempts} attempts may act"
    if call.attempt > step.attempt:
        yield f"belongs to a later attempt: the step is at {step.attempt}"


def _check_history(call: CallFacts, events: list[EventFacts]) -> Iterator[str]:
    """Check that a call is intended once, and unknown until one event resolves it."""
    intended = [event for event in events if event.type == "tool_call.intended"]
    if len(intended) != 1:
        yield f"was intended {len(intended)} times"
    elif events[0] is not intended[0] and events[0].type in CALL:
        yield f"has a result in event {events[0].seq}, before its intent in event {intended[0].seq}"
    status: str = CallStatus.UNKNOWN
    for event in events:
        if event.type not in CALL:
            continue
        try:
            moved(CALL, event.type, status)
        except ForbiddenMoveError as error:
            yield f"is contradicted by event {event.seq}: {error}"
            continue
        status = str(event.document().get("status"))
    if call.status is not None and call.status != status:
        yield f"is {call.status} in the ledger, and its events lead to {status}"


def _known_at(call: CallFacts, events: list[EventFacts]) -> int | None:
    """Return the number of the event that recorded the result of a call."""
    for event in events:
        if event.type in CALL and event.document().get("status") == call.status:
            return event.seq
    # An inherited result was known before; an inherited unknown is known from its answer in this task on.
    return 0 if call.attempt == 0 and call.status != CallStatus.UNKNOWN else None


def _check_repetition(
    call: CallFacts,
    step: StepFacts,
    earlier: list[tuple[CallFacts, int | None]],
    begun: int | None,
) -> Iterator[str]:
    """Check that a call is repeated only if the earlier ones allow it."""
    for other, known_at in earlier:
        if other.attempt >= call.attempt:
            if other.attempt == call.attempt:
                yield "was made twice"
            continue
        # A late result may arrive after the next attempt has begun.
        is_known = known_at is not None and begun is not None and known_at < begun
        is_same = other.request_hash == call.request_hash
        # A call that only reads may change its request; the ledger marks such calls by `retry`.
        may_differ = other.on_unknown == "retry" and not is_same
        if other.status == CallStatus.SUCCEEDED and is_known and not may_differ:
            yield f"repeats a call that is recorded as done in attempt {other.attempt}"
        if other.is_final and is_known and other.action == call.action:
            yield f"repeats a call that is recorded as finally failed in attempt {other.attempt}"
        if other.status == CallStatus.UNKNOWN and other.on_unknown != "retry":
            yield (
                f"repeats the call of attempt {other.attempt}, whose outcome is unknown"
                f" (on_unknown: {other.on_unknown})"
            )
        elif other.status == CallStatus.UNKNOWN and not is_same and step.kind in _ONE_EFFECT:
            yield f"differs from the request of attempt {other.attempt}, whose outcome is unknown"
