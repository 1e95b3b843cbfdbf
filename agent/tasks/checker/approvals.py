"""Approvals: each is decided at most once, by an allowed person, for exactly the shown request."""

import json
from collections.abc import Iterator
from typing import Final

from agent.core import waits
from agent.core.ids import request_hash
from agent.core.state_machine import (
    APPROVAL,
    STEP_ENDED,
    TASK_ENDED,
    ApprovalStatus,
    StepStatus,
)
from agent.steps.spec.questions import CHANNELS
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.store.read.audit import task_reads
from agent.store.read.audit.rows import ApprovalFacts, AuditRows, EventFacts
from agent.tasks.checker.violation import Finding
from agent.tasks.rules.retries import kept_answers, version_fit
from agent.workflows.graph import Graph

_REQUESTED: Final = frozenset({"approval.requested", "approval.renewed"})
_BY_A_PERSON: Final = frozenset(
    {ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.ANSWERED}
)


def check_questions(task: AuditRows) -> Iterator[Finding]:
    """Check that waiting steps and pending approvals agree, and that events record each change."""
    is_alive = task.task.status not in TASK_ENDED
    waiting = {
        step.id: waits.approval_of(step.wait)
        for step in task.steps
        if step.status == StepStatus.WAITING and is_alive
    }
    titles = {step.id: step.title for step in task.steps}
    known = {approval.id: approval for approval in task.approvals}
    for step_id, approval_id in waiting.items():
        if approval_id is None:
            continue
        where = f"step {titles[step_id]} waits on approval {approval_id}"
        request = known.get(approval_id)
        if request is None or request.step_id != step_id:
            yield Finding(f"{where}, which it did not ask for", titles[step_id])
        elif request.status != ApprovalStatus.PENDING:
            yield Finding(f"{where}, which is {request.status}", titles[step_id])
    events = _events_by_approval(task) if task.approvals else {}
    for approval in task.approvals:
        title = titles.get(approval.step_id, approval.step_id)
        sentences = [
            *_check_history(approval, events.get(approval.id, [])),
            *_check_decision(approval),
        ]
        is_waited_on = waiting.get(approval.step_id) == approval.id
        if approval.status == ApprovalStatus.PENDING and not is_waited_on:
            sentences.append("is pending, and its step does not wait on it")
        for sentence in sentences:
            yield Finding(f"approval {approval.id} of step {title} {sentence}", title)


def _events_by_approval(task: AuditRows) -> dict[str, list[EventFacts]]:
    events: dict[str, list[EventFacts]] = {}
    for event in task.events:
        if event.type.startswith("approval."):
            events.setdefault(str(event.document().get("approval")), []).append(event)
    return events


def _check_history(approval: ApprovalFacts, events: list[EventFacts]) -> Iterator[str]:
    """Check by an approval's events that it was asked once and ended once."""
    requests = [event for event in events if event.type in _REQUESTED]
    if len(requests) != 1:
        yield f"was asked {len(requests)} times"
    elif (requests[0].type == "approval.renewed") != (approval.renews is not None):
        yield f"was recorded by {requests[0].type}, and it renews {approval.renews}"
    ends = [
        str(event.document().get("status")) if event.type == "approval.decided" else event.type[9:]
        for event in events
        if event.type == "approval.decided" or event.type in APPROVAL
    ]
    expected = [] if approval.status == ApprovalStatus.PENDING else [approval.status]
    if ends != expected:
        yield f"is {approval.status}, and its events say {', '.join(ends) or 'nothing'}"
    if (approval.decided_at is None) != (approval.status == ApprovalStatus.PENDING):
        yield f"is {approval.status} and was decided at {approval.decided_at}"


def _check_decision(approval: ApprovalFacts) -> Iterator[str]:
    """Check that an allowed person decided, for exactly the shown request."""
    if request_hash(json.loads(approval.request)) != approval.request_hash:
        yield "shows another request than its hash is of"
    is_approved = approval.status == ApprovalStatus.APPROVED
    if is_approved != (approval.approved_hash is not None):
        yield f"is {approval.status}, and its approved hash is {approval.approved_hash}"
    elif is_approved and not approval.edits and approval.approved_hash != approval.request_hash:
        yield "was approved for something else than was shown"
    if approval.status not in _BY_A_PERSON:
        return
    by, channel = approval.decided_by, approval.decided_channel
    who = json.loads(approval.who) if approval.who else []
    if not by or channel not in CHANNELS:
        yield f"was decided by {by!r} from channel {channel!r}"
    elif who and channel not in who and f"{channel}:{by}" not in who:
        yield f"was decided by {by} from {channel}, and only {', '.join(who)} may"


def check_gates(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check that a step with a gate succeeded only after an approval."""
    if all(step.approval is None for step in graph.steps):
        return
    approved = {
        approval.step_id
        for approval in task.approvals
        if approval.status == ApprovalStatus.APPROVED
    }
    kept = {event.step_id for event in task.events if event.type == "step.kept"}
    for step in task.steps:
        if (
            "when" not in (graph.steps[step.index].approval or {"when": None})
            and step.status == StepStatus.SUCCEEDED
            and not step.is_group
            and step.id not in approved | kept
        ):
            yield Finding(
                f"step {step.title} has a gate and succeeded without an approval", step.title
            )


def check_open_gates(
    connection: Connection, task: AuditRows, graph: Graph | None
) -> Iterator[Finding]:
    """Check that a step acted without an approval only where the condition of its gate was false."""
    gated = [step for step in graph.steps if "when" in (step.approval or {})] if graph else []
    if not gated:
        return
    assert graph is not None
    kept = {event.step_id for event in task.events if event.type == "step.kept"}
    approved = {each.step_id for each in task.approvals if each.status == ApprovalStatus.APPROVED}
    explained = kept | approved | task_reads.steps_with_open_gates(connection, task.task.id)
    for step in task.steps:
        if (
            graph.steps[step.index] in gated
            and step.status == StepStatus.SUCCEEDED
            and not step.is_group
            and step.id not in explained
        ):
            text = f"step {step.title} succeeded without an approval, and its gate was not open"
            yield Finding(text, step.title)


def check_continuation(
    connection: Connection, task: AuditRows, graph: Graph | None
) -> Iterator[Finding]:
    """Check that no step of a retry or a fork relied on an answer given under another input."""
    if graph is None or not task.task.is_continuation:
        return
    line = lineage.predecessors(connection, task.task.id)
    if not line or line[-1].before is not None:
        # An earlier task was pruned: under which input an answer was given is not known any more.
        return
    steps: dict[int, list[kept_answers.EndedStep]] = {}
    for step in task.steps:
        ended = kept_answers.EndedStep(step.id, 0 if step.status in STEP_ENDED else None)
        steps.setdefault(step.index, []).append(ended)
    changes = version_fit.changes_to(
        connection,
        task.task.workflow_name,
        task.task.workflow_version,
        graph,
        is_about_to_run=False,
    )
    stale = kept_answers.stale_answers(
        connection, task.task.id, graph, steps, line[0].input, changes
    )
    if not stale:
        return
    ran = {event.step_id for event in task.events if event.type == "step.claimed"}
    for step in task.steps:
        relied_on = [i for i in stale if i != step.index and step.index in stale[i].not_covered]
        for index in sorted(relied_on if step.id in ran else ()):
            name, changed = graph.steps[index].name, "; ".join(stale[index].changes)
            why = f"before a change: {changed}" if changed else "under another input"
            text = f"step {step.title} ran after {name}, which was answered {why}"
            yield Finding(text, step.title)
