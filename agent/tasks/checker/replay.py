"""A task's events told again: they must lead to its rows, and never past a rule on the way."""

import json
from collections.abc import Iterator

from agent.core import waits
from agent.core.state_machine import (
    STEP,
    STEP_ENDED,
    TASK,
    ForbiddenMoveError,
    StepStatus,
    TaskStatus,
    moved,
)
from agent.core.waits import Items
from agent.store.read.audit_rows import AuditRows, EventFacts, StepFacts
from agent.tasks.checker.violation import Said
from agent.workflows.graph import Graph

_ATTEMPT_ENDED = frozenset({"step.retried", "step.lost"})
"""Events after which the next attempt has the next number."""
READ = frozenset({"step.kept", "step.waiting", "step.retried"})
"""Events whose data decides something."""


def gist(event_type: str, data: str | None) -> str | bool | None:
    """Return all that replay reads of an event's data; None for the types whose data it ignores."""
    if event_type not in READ:
        return None
    told = json.loads(data) if data else {}
    if event_type == "step.kept":
        return str(told.get("status"))
    if event_type == "step.waiting":
        return isinstance(waits.from_document(told.get("on", {})), Items)
    error_class = (told.get("error") or {}).get("class")
    return None if error_class is None else str(error_class)


class _Replay:
    """What the events have told so far."""

    def __init__(self, task: AuditRows, graph: Graph) -> None:
        self.graph = graph
        self.status: str = TaskStatus.PENDING
        self.steps = {step.id: step for step in task.steps}
        self.groups = {step.index: step.id for step in task.steps if not step.is_item}
        self.statuses: dict[str, str] = dict.fromkeys(self.steps, StepStatus.PENDING)
        self.attempts: dict[str, int] = dict.fromkeys(self.steps, 1)
        self.claims: dict[str, int] = dict.fromkeys(self.steps, 0)
        self.placed: set[str] = set()
        """Steps that were claimed and have not ended: each holds a place."""

    def tell(self, event: EventFacts) -> Iterator[Said]:
        """Follow one event, and say what it could not have followed."""
        if event.type in TASK:
            try:
                self.status = moved(TASK, event.type, self.status)
            except ForbiddenMoveError as error:
                yield Said(f"event {event.seq}: {error}")
        elif event.type == "step.kept" or event.type in STEP:
            step = self.steps.get(event.step_id or "")
            if step is None:
                yield Said(f"event {event.seq}: {event.type} is about a step that is not there")
            elif event.type == "step.kept":
                self.statuses[step.id] = str(gist(event.type, event.data))
                self.attempts[step.id] = event.attempt or 1
            else:
                yield from self._move(event, step)

    def _move(self, event: EventFacts, step: StepFacts) -> Iterator[Said]:
        where = f"event {event.seq}: step {step.title}:"
        if event.attempt != self.attempts[step.id]:
            yield Said(
                f"{where} {event.type} in attempt {event.attempt},"
                f" and it is at {self.attempts[step.id]}",
                step.title,
            )
        if event.type == "step.claimed":
            yield from self._claim(where, step)
        try:
            status = moved(STEP, event.type, self.statuses[step.id])
        except ForbiddenMoveError as error:
            yield Said(f"{where} {error}", step.title)
            return
        self.statuses[step.id] = status
        if event.type in _ATTEMPT_ENDED:
            self.attempts[step.id] = (event.attempt or 0) + 1
        if event.type == "step.retried":
            yield from self._retry(where, event, step)
        is_group_now = event.type == "step.waiting" and gist(event.type, event.data) is True
        if status in STEP_ENDED or is_group_now:
            self.placed.discard(step.id)

    def _claim(self, where: str, step: StepFacts) -> Iterator[Said]:
        self.claims[step.id] += 1
        if self.status != TaskStatus.RUNNING:
            yield Said(f"{where} claimed while the task was {self.status}", step.title)
        if step.is_item:
            if self.statuses[self.groups[step.index]] != StepStatus.WAITING:
                yield Said(f"{where} claimed while its group did not wait for it", step.title)
        else:
            for parent in self.graph.parents[step.index]:
                if self.statuses[self.groups[parent]] not in STEP_ENDED:
                    name = self.graph.steps[parent].name
                    yield Said(f"{where} claimed before the end of {name} was recorded", step.title)
        self.placed.add(step.id)
        limit = self.graph.max_parallel
        if limit is not None and len(self.placed) > limit:
            yield Said(
                f"{where} claimed as one of {len(self.placed)} in a window of {limit}", step.title
            )
        fanout = self.graph.steps[step.index].fanout
        if step.is_item and fanout is not None and fanout.concurrency is not None:
            beside = sum(
                self.steps[other].index == step.index and self.steps[other].is_item
                for other in self.placed
            )
            if beside > fanout.concurrency:
                yield Said(
                    f"{where} claimed as one of {beside} in a window of {fanout.concurrency}",
                    step.title,
                )

    def _retry(self, where: str, event: EventFacts, step: StepFacts) -> Iterator[Said]:
        error_class = gist(event.type, event.data)
        # The attempt after an unknown may still find out what became of it.
        if (event.attempt or 0) >= step.max_attempts and error_class != "unknown":
            yield Said(
                f"{where} tried again after attempt {event.attempt} of {step.max_attempts}",
                step.title,
            )


def events(task: AuditRows, graph: Graph) -> Iterator[Said]:
    """The events are numbered without gaps, possible one after another, and lead to the rows."""
    numbers = [event.seq for event in task.events]
    if numbers != list(range(1, task.task.event_seq + 1)):
        yield Said(f"its events are not numbered 1 to {task.task.event_seq} without gaps")
    replay = _Replay(task, graph)
    for event in task.events:
        yield from replay.tell(event)
    if replay.status != task.task.status:
        yield Said(f"it is {task.task.status}, and its events lead to {replay.status}")
    for step in task.steps:
        status, attempt = replay.statuses[step.id], replay.attempts[step.id]
        if status != step.status:
            yield Said(
                f"step {step.title} is {step.status}, and its events lead to {status}", step.title
            )
        if attempt != step.attempt:
            yield Said(
                f"step {step.title} is at attempt {step.attempt}, and its events at {attempt}",
                step.title,
            )
        # Steps that go on from another task's may start as if claimed once: their past is read then.
        before = (0, 1) if task.task.is_continuation else (0,)
        if step.claim_token - replay.claims[step.id] not in before:
            yield Said(
                f"step {step.title} is at token {step.claim_token},"
                f" and was claimed {replay.claims[step.id]} times",
                step.title,
            )
