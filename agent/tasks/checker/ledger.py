"""The calls of one task: every effect has its row in the ledger, which says only what was told."""

from collections.abc import Iterator
from typing import Final

from agent.core.ids import idempotency_key
from agent.core.state_machine import CALL, CallStatus, ForbiddenMoveError, StepStatus, moved
from agent.store.read.audit_rows import AuditRows, CallFacts, EventFacts, StepFacts
from agent.tasks.checker.violation import Said

_ONE_EFFECT: Final = frozenset({"http", "shell"})
"""Kinds of steps whose recorded calls are all effects."""


def calls(task: AuditRows) -> Iterator[Said]:
    """Each call is intended once, resolved by somebody's word, and never repeated blindly."""
    steps = {step.id: step for step in task.steps}
    told, claimed = _told(task) if task.calls else ({}, {})
    known: dict[tuple[str, int], list[tuple[CallFacts, int | None]]] = {}
    for call in task.calls:
        step = steps.get(call.step_id)
        if step is None:
            yield Said(f"call {call.id} belongs to a step that is not there")
            continue
        about = told.get(call.id, [])
        earlier = known.setdefault((call.step_id, call.number), [])
        begun = claimed.get((call.step_id, call.attempt))
        found = [*_entry(task, call, step), *_repetition(call, step, earlier, begun)]
        # Calls of attempt 0 were inherited from the task that this one retries.
        if call.attempt > 0:
            found += _history(call, about)
        earlier.append((call, _known_at(call, about)))
        for sentence in found:
            where = f"step {step.title}: call {call.action} of attempt {call.attempt}"
            yield Said(f"{where} {sentence}", step.title)
    by_key = {call.idempotency_key: call for call in task.calls}
    for step in task.steps:
        if step.status == StepStatus.SUCCEEDED and step.idempotency_key is not None:
            by = by_key.get(step.idempotency_key)
            if by is None or by.step_id != step.id or by.status != CallStatus.SUCCEEDED:
                status = "not on record" if by is None else by.status
                yield Said(f"step {step.title} succeeded by a call that is {status}", step.title)


def _told(
    task: AuditRows,
) -> tuple[dict[str, list[EventFacts]], dict[tuple[str | None, int | None], int]]:
    """Return the events about each call, and the number of each attempt's first claim."""
    told: dict[str, list[EventFacts]] = {}
    claimed: dict[tuple[str | None, int | None], int] = {}
    for event in task.events:
        if event.type.startswith("tool_call."):
            told.setdefault(str(event.details().get("call")), []).append(event)
        elif event.type == "step.claimed":
            claimed.setdefault((event.step_id, event.attempt), event.seq)
    return told, claimed


def _entry(task: AuditRows, call: CallFacts, step: StepFacts) -> Iterator[str]:
    if call.status is None:
        yield "has no row in the ledger"
    elif call.attempt > 0 and (call.status == CallStatus.UNKNOWN) != (call.resolved_at is None):
        yield f"is {call.status} and resolved at {call.resolved_at}"
    key = idempotency_key(task.task.id, call.step_id, call.attempt, call.action, call.request_hash)
    if key != call.idempotency_key:
        yield "stands under a key that is not its own"
    if call.attempt > step.max_attempts:
        yield f"was begun, and {step.max_attempts} attempts may act"
    if call.attempt > step.attempt:
        yield f"belongs to an attempt to come: the step is at {step.attempt}"


def _history(call: CallFacts, about: list[EventFacts]) -> Iterator[str]:
    """A call is intended once, and then unknown until one word says what became of it."""
    intended = [event for event in about if event.type == "tool_call.intended"]
    if len(intended) != 1:
        yield f"was intended {len(intended)} times"
    elif about[0] is not intended[0] and about[0].type in CALL:
        yield f"has a result in event {about[0].seq}, before its intent in event {intended[0].seq}"
    status: str = CallStatus.UNKNOWN
    for event in about:
        if event.type not in CALL:
            continue
        try:
            moved(CALL, event.type, status)
        except ForbiddenMoveError as error:
            yield f"is told of wrongly in event {event.seq}: {error}"
            continue
        status = str(event.details().get("status"))
    if call.status is not None and call.status != status:
        yield f"is {call.status} in the ledger, and its events lead to {status}"


def _known_at(call: CallFacts, about: list[EventFacts]) -> int | None:
    """Return the number of the event by which the result of a call was known."""
    if call.attempt == 0 and call.status != CallStatus.UNKNOWN:
        return 0
    for event in about:
        if event.type in CALL and event.details().get("status") == call.status:
            return event.seq
    return None


def _repetition(
    call: CallFacts,
    step: StepFacts,
    earlier: list[tuple[CallFacts, int | None]],
    begun: int | None,
) -> Iterator[str]:
    """A call is made again only when the earlier ones allow it."""
    for other, known_at in earlier:
        if other.attempt >= call.attempt:
            if other.attempt == call.attempt:
                yield "was made twice"
            continue
        # A word that came late may meet an attempt that had begun by then.
        is_known = known_at is not None and begun is not None and known_at < begun
        is_same = other.request_hash == call.request_hash
        # What only reads may ask for something else; `retry` is all that the ledger says of that.
        may_differ = other.on_unknown == "retry" and not is_same
        if other.status == CallStatus.SUCCEEDED and is_known and not may_differ:
            yield f"repeats what was on record as done in attempt {other.attempt}"
        if other.is_final and is_known and other.action == call.action:
            yield f"repeats what was on record as failed for good in attempt {other.attempt}"
        if other.status == CallStatus.UNKNOWN and other.on_unknown != "retry":
            yield (
                f"repeats that of attempt {other.attempt}, of which nobody knows"
                f" what became (on_unknown: {other.on_unknown})"
            )
        elif other.status == CallStatus.UNKNOWN and not is_same and step.kind in _ONE_EFFECT:
            yield f"is another request than that of attempt {other.attempt}, which is unknown"
