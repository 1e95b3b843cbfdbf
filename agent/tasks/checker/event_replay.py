"""Replay of a task's events: they must lead to its rows, and each move must be allowed."""

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
from agent.store.read.audit.rows import AuditRows, EventFacts, StepFacts
from agent.tasks.checker.violation import Finding
from agent.workflows.graph import Graph

_ATTEMPT_ENDED = frozenset({"step.retried", "step.lost"})
"""Events after which the next attempt has the next number."""
READ = frozenset({"step.kept", "step.waiting", "step.retried"})
"""Events whose data the replay reads."""


def gist(event_type: str, data: str | None) -> str | bool | None:
    """Return what the replay reads of an event's data; None for types whose data it ignores."""
    if event_type not in READ:
        return None
    document = json.loads(data) if data else {}
    if event_type == "step.kept":
        return str(document.get("status"))
    if event_type == "step.waiting":
        return isinstance(waits.from_document(document.get("on", {})), Items)
    error_class = (document.get("error") or {}).get("class")
    return None if error_class is None else str(error_class)


class _Replay:
    """The state of a task after some of its events."""

    def __init__(self, task: AuditRows, graph: Graph) -> None:
        self.graph = graph
        self.status: str = TaskStatus.PENDING
        self.steps = {step.id: step for step in task.steps}
        self.groups = {step.index: step.id for step in task.steps if not step.is_item}
        self.statuses: dict[str, str] = dict.fromkeys(self.steps, StepStatus.PENDING)
        self.attempts: dict[str, int] = dict.fromkeys(self.steps, 1)
        self.claims: dict[str, int] = dict.fromkeys(self.steps, 0)
        self.placed: set[str] = set()
        """Steps that were claimed and have not ended: each holds a slot in the window."""

    def apply(self, event: EventFacts) -> Iterator[Finding]:
        """Apply one event; yield which rules it breaks."""
        if event.type in TASK:
            try:
                self.status = moved(TASK, event.type, self.status)
            except ForbiddenMoveError as error:
                yield Finding(f"event {event.seq}: {error}")
        elif event.type == "step.kept" or event.type in STEP:
            step = self.steps.get(event.step_id or "")
            if step is None:
                yield Finding(f"event {event.seq}: {event.type} names a step that does not exist")
            elif event.type == "step.kept":
                self.statuses[step.id] = str(gist(event.type, event.data))
                self.attempts[step.id] = event.attempt or 1
            else:
                yield from self._move(event, step)

    def _move(self, event: EventFacts, step: StepFacts) -> Iterator[Finding]:
        where = f"event {event.seq}: step {step.title}:"
        if event.attempt != self.attempts[step.id]:
            yield Finding(
                f"{where} {event.type} in attempt {event.attempt},"
                f" and it is at {self.attempts[step.id]}",
                step.title,
            )
        if event.type == "step.claimed":
            yield from self._claim(where, step)
        try:
            status = moved(STEP, event.type, self.statuses[step.id])
        except ForbiddenMoveError as error:
            yield Finding(f"{where} {error}", step.title)
            return
        self.statuses[step.id] = status
        if event.type in _ATTEMPT_ENDED:
            self.attempts[step.id] = (event.attempt or 0) + 1
        if event.type == "step.retried":
            yield from self._retry(where, event, step)
        is_group_now = event.type == "step.waiting" and gist(event.type, event.data) is True
        if status in STEP_ENDED or is_group_now:
            self.placed.discard(step.id)

    def _claim(self, where: str, step: StepFacts) -> Iterator[Finding]:
        self.claims[step.id] += 1
        if self.status != TaskStatus.RUNNING:
            yield Finding(f"{where} claimed while the task was {self.status}", step.title)
        if step.is_item:
            if self.statuses[self.groups[step.index]] != StepStatus.WAITING:
                yield Finding(f"{where} claimed while its group did not wait for it", step.title)
        else:
            for parent in self.graph.parents[step.index]:
                if self.statuses[self.groups[parent]] not in STEP_ENDED:
                    name = self.graph.steps[parent].name
                    yield Finding(
                        f"{where} claimed before the end of {name} was recorded", step.title
                    )
        self.placed.add(step.id)
        limit = self.graph.max_parallel
        if limit is not None and len(self.placed) > limit:
            yield Finding(
                f"{where} claimed as one of {len(self.placed)} in a window of {limit}", step.title
            )
        fanout = self.graph.steps[step.index].fanout
        if step.is_item and fanout is not None and fanout.concurrency is not None:
            beside = sum(
                self.steps[other].index == step.index and self.steps[other].is_item
                for other in self.placed
            )
            if beside > fanout.concurrency:
                yield Finding(
                    f"{where} claimed as one of {beside} in a window of {fanout.concurrency}",
                    step.title,
                )

    def _retry(self, where: str, event: EventFacts, step: StepFacts) -> Iterator[Finding]:
        error_class = gist(event.type, event.data)
        # After an unknown call one attempt more may find out its result.
        if (event.attempt or 0) >= step.max_attempts and error_class != "unknown":
            yield Finding(
                f"{where} tried again after attempt {event.attempt} of {step.max_attempts}",
                step.title,
            )


def check_events(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check that events are numbered without gaps, follow the rules, and lead to the rows."""
    numbers = [event.seq for event in task.events]
    if numbers != list(range(1, task.task.event_seq + 1)):
        yield Finding(f"its events are not numbered 1 to {task.task.event_seq} without gaps")
    replay = _Replay(task, graph)
    for event in task.events:
        yield from replay.apply(event)
    if replay.status != task.task.status:
        yield Finding(f"it is {task.task.status}, and its events lead to {replay.status}")
    for step in task.steps:
        status, attempt = replay.statuses[step.id], replay.attempts[step.id]
        if status != step.status:
            yield Finding(
                f"step {step.title} is {step.status}, and its events lead to {status}", step.title
            )
        if attempt != step.attempt:
            yield Finding(
                f"step {step.title} is at attempt {step.attempt}, and its events at {attempt}",
                step.title,
            )
        # A step that inherits calls starts with token 1, as if it had been claimed once.
        before = (0, 1) if task.task.is_continuation else (0,)
        if step.claim_token - replay.claims[step.id] not in before:
            yield Finding(
                f"step {step.title} is at token {step.claim_token},"
                f" and was claimed {replay.claims[step.id]} times",
                step.title,
            )
