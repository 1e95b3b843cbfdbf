"""What people were asked: decided at most once, by whom it was put to, for what they were shown."""

import json
from collections.abc import Iterator
from typing import Final

from agent.core import waits
from agent.core.ids import request_hash
from agent.core.state_machine import APPROVAL, TASK_ENDED, ApprovalStatus, StepStatus
from agent.steps.spec.questions import CHANNELS
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.store.read.audit_rows import ApprovalFacts, AuditRows, EventFacts
from agent.tasks.checker.violation import Said
from agent.tasks.rules import kept_answers
from agent.workflows.graph import Graph

_ASKED: Final = frozenset({"approval.requested", "approval.renewed"})
_BY_A_PERSON: Final = frozenset(
    {ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.ANSWERED}
)


def questions(task: AuditRows) -> Iterator[Said]:
    """Waiting steps and pending approvals agree; the log tells of each beginning and each end."""
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
        asked = known.get(approval_id)
        if asked is None or asked.step_id != step_id:
            yield Said(f"{where}, which it did not ask for", titles[step_id])
        elif asked.status != ApprovalStatus.PENDING:
            yield Said(f"{where}, which is {asked.status}", titles[step_id])
    told = _told(task) if task.approvals else {}
    for approval in task.approvals:
        title = titles.get(approval.step_id, approval.step_id)
        found = [*_history(approval, told.get(approval.id, [])), *_decision(approval)]
        is_waited_on = waiting.get(approval.step_id) == approval.id
        if approval.status == ApprovalStatus.PENDING and not is_waited_on:
            found.append("is pending, and its step does not wait on it")
        for sentence in found:
            yield Said(f"approval {approval.id} of step {title} {sentence}", title)


def _told(task: AuditRows) -> dict[str, list[EventFacts]]:
    told: dict[str, list[EventFacts]] = {}
    for event in task.events:
        if event.type.startswith("approval."):
            told.setdefault(str(event.told().get("approval")), []).append(event)
    return told


def _history(approval: ApprovalFacts, about: list[EventFacts]) -> Iterator[str]:
    """A question is asked once, and ends once."""
    asked = [event for event in about if event.type in _ASKED]
    if len(asked) != 1:
        yield f"was asked {len(asked)} times"
    elif (asked[0].type == "approval.renewed") != (approval.renews is not None):
        yield f"is told of by {asked[0].type}, and it renews {approval.renews}"
    ends = [
        str(event.told().get("status")) if event.type == "approval.decided" else event.type[9:]
        for event in about
        if event.type == "approval.decided" or event.type in APPROVAL
    ]
    wanted = [] if approval.status == ApprovalStatus.PENDING else [approval.status]
    if ends != wanted:
        yield f"is {approval.status}, and its events tell of {', '.join(ends) or 'nothing'}"
    if (approval.decided_at is None) != (approval.status == ApprovalStatus.PENDING):
        yield f"is {approval.status} and was decided at {approval.decided_at}"


def _decision(approval: ApprovalFacts) -> Iterator[str]:
    """Somebody who might has decided it, for exactly what was shown."""
    if request_hash(json.loads(approval.request)) != approval.request_hash:
        yield "shows something else than its hash stands for"
    is_approved = approval.status == ApprovalStatus.APPROVED
    if is_approved != (approval.approved_hash is not None):
        yield f"is {approval.status}, and the hash of what was approved does not say so"
    elif is_approved and not approval.edits and approval.approved_hash != approval.request_hash:
        yield "was approved for something else than was shown"
    if approval.status not in _BY_A_PERSON:
        return
    by, channel = approval.decided_by, approval.decided_channel
    who = json.loads(approval.who) if approval.who else []
    if not by or channel not in CHANNELS:
        yield f"was decided by {by or 'nobody'} from {channel or 'nowhere'}"
    elif who and channel not in who and f"{channel}:{by}" not in who:
        yield f"was decided by {by} from {channel}, and only {', '.join(who)} might"


def gates(task: AuditRows, graph: Graph) -> Iterator[Said]:
    """A step behind a gate has succeeded only with somebody's approval."""
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
            graph.steps[step.index].approval is not None
            and step.status == StepStatus.SUCCEEDED
            and not step.is_group
            and step.id not in approved | kept
        ):
            yield Said(
                f"step {step.title} succeeded behind its gate, and nobody approved it", step.title
            )


def carried_over(connection: Connection, task: AuditRows, graph: Graph | None) -> Iterator[Said]:
    """No step ran on the strength of an answer that was given under another input."""
    if graph is None or not task.task.is_continuation:
        return
    line = lineage.predecessors(connection, task.task.id)
    if not line or line[-1][2] is not None:
        # Pruned since: under which input an answer was given cannot be told any more.
        return
    rows: dict[int, list[dict[str, str]]] = {index: [] for index in range(len(graph.steps))}
    for step in task.steps:
        rows.setdefault(step.index, []).append({"id": step.id})
    foreign = kept_answers.given_under_another_input(
        connection, task.task.id, graph, rows, new_input=line[0][1]
    )
    if not foreign:
        return
    ran = {event.step_id for event in task.events if event.type == "step.claimed"}
    for step in task.steps:
        relied_on = sorted(foreign & _ancestors(graph, step.index))
        if step.id in ran and relied_on:
            name = graph.steps[relied_on[0]].name
            yield Said(
                f"step {step.title} ran after {name}, which was answered under another input",
                step.title,
            )


def _ancestors(graph: Graph, index: int) -> set[int]:
    found: set[int] = set()
    queue = [index]
    while queue:
        for parent in graph.parents[queue.pop()]:
            if parent not in found:
                found.add(parent)
                queue.append(parent)
    return found
