"""Answers to questions, from any process: only the first one counts, for exactly what was shown.

Permission, value and edits are checked before the task is locked: they depend on parts of the row
that never change. Then the task is locked, and one transaction decides the row and moves its step.
"""

import json
from dataclasses import dataclass
from typing import Final, Literal

from agent.approvals.permission import Principal, check_answer, check_scope
from agent.core.clock import SECOND, Clock, to_iso
from agent.core.ids import request_hash
from agent.core.state_machine import (
    TASK_ENDED,
    ApprovalStatus,
    CallStatus,
    StepStatus,
    WorkStatus,
)
from agent.core.waits import UnknownCall
from agent.steps.attempt import approval_gate, prepare
from agent.steps.spec.questions import VERDICTS, answer_problem
from agent.steps.spec.registry import KINDS
from agent.steps.types.call_records import CallResult
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json, StepError
from agent.store.db import json_values
from agent.store.db.database import Connection, Database
from agent.store.engine import approval_rows as store
from agent.store.engine import call_rows, lineage, reads, work_rows
from agent.store.engine.approval_rows import ApprovalRow
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import state_table
from agent.tasks.operator.operator import CommandResult, Operator
from agent.tasks.operator.step_names import find_step
from agent.tasks.rules import approvals, call_ledger
from agent.tasks.rules.approvals import Decision
from agent.tasks.rules.external_work import work_leases
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, StepRow
from agent.workflows.graph import Step

AnswerVerb = Literal["approve", "deny", "answer"]
Verdict = Literal["done", "retry", "fail"]

STATUSES: Final[dict[str, ApprovalStatus]] = {
    "approve": ApprovalStatus.APPROVED,
    "deny": ApprovalStatus.DENIED,
    "answer": ApprovalStatus.ANSWERED,
}
_VERBS: Final[dict[str, tuple[str, ...]]] = {
    "unknown": ("answer",),
    "input": ("answer", "deny"),
}
"""How questions of these kinds are answered; all others are approved or denied."""
MAX_COMMENT: Final = 10_000
MAX_DEFER_SECONDS: Final = 366 * 86_400


VERDICT_WORDS: Final = {
    "done": "counts as done",
    "retry": "will be tried again",
    "fail": "has failed",
}


class InvalidAnswerError(ValueError):
    """The answer does not fit its question; nothing was decided."""


class DecidedError(RefusedError):
    """The question was decided before, expired, or was withdrawn."""

    def __init__(self, row: ApprovalRow, renewed_as: str | None = None) -> None:
        who = f" by {row.decided_by} ({row.decided_channel})" if row.decided_by else ""
        text = f"it was {row.status} already{who}, at {to_iso(row.decided_at)}"
        if renewed_as is not None:
            text += f"; it is asked again as {renewed_as}"
        super().__init__(text)
        self.row = row
        self.renewed_as = renewed_as


@dataclass(frozen=True, slots=True)
class Answered:
    """The effect of an answer."""

    approval_id: str
    task_id: str
    step: str
    status: str
    message: str


def answer(
    database: Database,
    approval_id: str,
    decision: AnswerVerb,
    *,
    principal: Principal,
    comment: str | None = None,
    value: Json = None,
    edits: dict[str, Json] | None = None,
    clock: Clock | None = None,
) -> Answered:
    """Decide an approval and let its step go on.

    Raises `NotFoundError`, `NotAllowedError`, `InvalidAnswerError`, or `DecidedError` for an answer
    that is not the first. `value` answers an `input`; for an `unknown` it is `done`, `retry` or
    `fail`, or ``{"verdict": "done", "output": …}``. `edits` go with `approve`.
    """
    with database.connect("reader") as connection:
        row = _open_to(connection, approval_id, principal)
        definition = _definition(connection, row)
    checked = _check(row, definition, decision, principal, comment, value, edits)
    with Operator(database, clock or database.clock).changing(row.task_id) as (tx, locked):
        row = _pending(tx, approval_id)
        decided = _decide(tx, locked, _step(tx, locked, row), row, checked)
    row = _require(database, row, decided)
    message = f"{row.status}: step {definition.name} of task {row.task_id}"
    return Answered(row.id, row.task_id, definition.name, row.status, message)


def resolve(
    database: Database,
    task_id: str,
    step_name: str,
    verdict: Verdict,
    output: Json = None,
    *,
    principal: Principal,
    clock: Clock | None = None,
) -> CommandResult:
    """Say what became of an effect whose result is unknown: this answers the step's question.

    Where the task has ended there is no question any more: the verdict is recorded, and nothing runs.
    """
    check_scope(principal, "approve", "a verdict")
    with Operator(database, clock or database.clock).changing(task_id) as (tx, locked):
        state_table.check("resolve", locked.task.status)
        step = find_step(tx, locked, step_name)
        if locked.task.status in TASK_ENDED:
            return _record_verdict(tx, locked, step, step_name, verdict, output, principal)
        on = step.wait
        question_id = on.approval_id if isinstance(on, UnknownCall) else None
        if step.status != StepStatus.WAITING or question_id is None:
            raise RefusedError(_nothing_to_resolve(step_name, step))
        row = _open_to(tx, question_id, principal)
        value = {"verdict": verdict} | ({"output": output} if output is not None else {})
        checked = _check(row, locked.definition(step), "answer", principal, None, value, None)
        decided = _decide(tx, locked, step, row, checked)
    _require(database, row, decided)
    return CommandResult(True, f"step {step_name!r} {VERDICT_WORDS[verdict]}", task_id)


def _record_verdict(
    tx: Connection,
    locked: LockedTask,
    step: StepRow,
    step_name: str,
    verdict: Verdict,
    output: Json,
    principal: Principal,
) -> CommandResult:
    """Record what became of the first unknown effect of a step whose task has ended."""
    task_id = locked.task.id
    again = lineage.retried_as(tx, task_id)
    if again is not None:
        raise RefusedError(f"the task was retried as {again}: resolve the step there")
    unknown = [row for row in call_rows.unresolved_calls(tx, [step.id]) if row[-1] != "retry"]
    if not unknown:
        raise RefusedError(_nothing_to_resolve(step_name, step))
    check_answer(principal, approvals.gate_who(tx, locked, step))
    if verdict == "fail":
        raise RefusedError("the task has ended: say whether it happened (done) or not (retry)")
    alive_until = lineage.effects_alive_until(tx, task_id)
    if alive_until is not None and alive_until > locked.now:
        left = (alive_until - locked.now) // SECOND + 1
        raise RefusedError(f"the effect may still be under way; try again in {left} s")
    _, call_id, _, action, _, key, _ = unknown[0]
    did_happen = verdict == "done"
    error = StepError("not_applied", "unknown", "a person answered that it did not happen")
    locked.results.append(
        CallResult(
            call_id,
            key,
            CallStatus.SUCCEEDED if did_happen else CallStatus.FAILED,
            response=output if did_happen else None,
            error=None if did_happen else error,
            is_resolved_by_check=True,
            resolved_by=f"{principal.channel}:{principal.identity}",
        )
    )
    call_ledger.resolve(tx, [locked])
    message = (
        f"recorded: {action} of step {step_name!r} {'happened' if did_happen else 'did not happen'}"
    )
    left = len(unknown) - 1
    return CommandResult(True, message + (f"; {left} more of it unknown" if left else ""), task_id)


def resume_work(
    database: Database,
    work_id: str,
    value: Json = None,
    reason: str | None = None,
    *,
    principal: Principal,
    clock: Clock | None = None,
) -> CommandResult:
    """Put work back into its queue whose worker asked a person: with an answer to that question.

    Without a value the work goes on without an answer, unless the question says what it takes.
    """
    check_scope(principal, "approve", "an answer")
    with database.connect("reader") as connection:
        work = work_rows.find(connection, [work_id]).get(work_id)
    if work is None:
        raise NotFoundError(f"there is no work {work_id}")
    with Operator(database, clock or database.clock).changing(work.task_id) as (tx, locked):
        locked.load(tx, [(work.step_index, work.parallel_index)])
        step = locked.steps.get((work.step_index, work.parallel_index))
        work_leases.load(tx, locked, [work_id])
        work = locked.work[work_id]
        is_parked = work.status == WorkStatus.ASKED and locked.task.status not in TASK_ENDED
        if step is None or step.status != StepStatus.WAITING or not is_parked:
            raise RefusedError(
                f"the work {work_id} does not wait for a person: it is {work.status}"
            )
        assert work.approval_id is not None
        row = _open_to(tx, work.approval_id, principal)
        if value is None and row.choices is None and row.value_schema is None:
            decided: ApprovalRow | None = row
            transitions.withdraw(locked, step, reason or "resumed")
            answered = {"status": "resumed", "value": None, "by": principal.identity}
            work_leases.unpark(
                locked, step, work, {"question": None, **answered, "comment": reason}
            )
        else:
            definition = locked.definition(step)
            checked = _check(row, definition, "answer", principal, reason, value, None)
            decided = _decide(tx, locked, step, row, checked)
    _require(database, row, decided)
    return CommandResult(True, f"queued again in {work.queue!r}", work.task_id)


def defer(
    database: Database,
    approval_id: str,
    seconds: float,
    *,
    principal: Principal,
    clock: Clock | None = None,
) -> None:
    """Postpone the reminder of a question; when it expires does not change."""
    if not 0 < seconds <= MAX_DEFER_SECONDS:
        raise InvalidAnswerError("defer by more than zero seconds and at most 366 days")
    with database.connect("reader") as connection:
        row = _open_to(connection, approval_id, principal)
    with Operator(database, clock or database.clock).changing(row.task_id) as (tx, locked):
        row = _pending(tx, approval_id)
        approvals.defer(
            tx, locked, _step(tx, locked, row), row, int(seconds * SECOND), principal.identity
        )


def _open_to(connection: Connection, approval_id: str, principal: Principal) -> ApprovalRow:
    """Return a pending approval that this caller may answer; raise if there is none."""
    row = store.find(connection, approval_id)
    if row is None:
        raise NotFoundError(f"there is no approval {approval_id}")
    check_answer(principal, json.loads(row.who or "[]"))
    if row.status != ApprovalStatus.PENDING:
        raise DecidedError(row, _renewed_as(connection, row))
    return row


def _decide(
    tx: Connection, locked: LockedTask, step: StepRow, row: ApprovalRow, checked: Decision
) -> ApprovalRow | None:
    """Decide an approval under its task's lock; None if its time is over: then it expires instead."""
    if row.expires_at is not None and row.expires_at <= locked.now:
        # The loop that records that has not come yet.
        approvals.expire(tx, locked, step, row)
        return None
    return approvals.decide(tx, locked, step, row, checked)


def _require(database: Database, row: ApprovalRow, decided: ApprovalRow | None) -> ApprovalRow:
    """Return a decided approval; raise if it expired."""
    if decided is not None:
        return decided
    with database.connect("reader") as connection:
        raise DecidedError(store.find(connection, row.id) or row, _renewed_as(connection, row))


def _pending(connection: Connection, approval_id: str) -> ApprovalRow:
    """Return an approval that is pending; raise if there is none or it was decided."""
    row = store.find(connection, approval_id)
    if row is None:
        raise NotFoundError(f"there is no approval {approval_id}")
    if row.status != ApprovalStatus.PENDING:
        raise DecidedError(row, _renewed_as(connection, row))
    return row


def _check(
    row: ApprovalRow,
    definition: Step,
    decision: AnswerVerb,
    principal: Principal,
    comment: str | None,
    value: Json,
    edits: dict[str, Json] | None,
) -> Decision:
    """Return the decision that an answer makes; raise if it does not fit its question."""
    try:
        json_values.encode([principal.identity, comment, value, edits], "the answer")
    except json_values.NotPlainJsonError as error:
        raise InvalidAnswerError(str(error)) from None
    if comment is not None and len(comment) > MAX_COMMENT:
        raise InvalidAnswerError(f"the comment is longer than {MAX_COMMENT:,} characters")
    verbs = _VERBS.get(row.kind, ("approve", "deny"))
    if decision not in verbs:
        hint = " with done, retry or fail" if row.kind == "unknown" else ""
        raise InvalidAnswerError(
            f"this is a question of the kind {row.kind!r}: {' or '.join(verbs)} it{hint}"
        )
    if edits and decision != "approve":
        raise InvalidAnswerError("only an approval takes edits")
    approved_hash = None
    if decision == "approve":
        approved_hash = _approved_hash(row, definition, edits) if edits else row.request_hash
    if decision == "answer":
        value = _verdict(value) if row.kind == "unknown" else _value(row, value)
    elif value is not None:
        raise InvalidAnswerError(f"{decision!r} takes no value")
    return Decision(
        STATUSES[decision],
        principal.identity,
        principal.channel,
        comment,
        value,
        edits or None,
        approved_hash,
    )


def _value(row: ApprovalRow, value: Json) -> Json:
    choices = json.loads(row.choices) if row.choices is not None else None
    schema = json.loads(row.value_schema) if row.value_schema is not None else None
    problem = answer_problem(value, choices, schema)
    if problem is not None:
        raise InvalidAnswerError(problem)
    return value


def _verdict(value: Json) -> dict[str, Json]:
    verdict = {"verdict": value} if isinstance(value, str) else value
    if (
        not isinstance(verdict, dict)
        or verdict.get("verdict") not in VERDICTS
        or not verdict.keys() <= {"verdict", "output"}
        or ("output" in verdict and verdict["verdict"] != "done")
    ):
        raise InvalidAnswerError(
            'answer done, retry or fail, or {"verdict": "done", "output": …} with its output'
        )
    return {"verdict": verdict["verdict"], "output": verdict.get("output")}


def _approved_hash(row: ApprovalRow, definition: Step, edits: dict[str, Json]) -> str:
    """Check edits by the step's kind; return the hash of the request with these edits."""
    editable = json.loads(row.editable or "[]")
    for path in edits:
        if not any(path == key or path.startswith(f"{key}.") for key in editable):
            allowed = ", ".join(editable) or "nothing"
            raise InvalidAnswerError(f"{path!r} may not be edited: {allowed} may")
    request = json.loads(row.request)
    # An edit must not replace a reference to a secret by another.
    for place in prepare.prepare_step(definition).secret_paths:
        for path in edits:
            parts = path.split(".")
            common = min(len(parts), len(place))
            if [str(part) for part in place[:common]] == parts[:common]:
                raise InvalidAnswerError(f"{path!r} holds a secret and may not be edited")
    try:
        config = approval_gate.apply_edits(request["config"], edits)
        prepare.check_config(KINDS[request["kind"]], config)
    except ValueError as error:
        raise InvalidAnswerError(str(error)) from None
    except DefiniteFailure as error:
        raise InvalidAnswerError(error.error.message) from None
    return request_hash(approval_gate.gated_request(request["kind"], config))


def _nothing_to_resolve(name: str, step: StepRow) -> str:
    """Return why a step has no unknown effect to resolve."""
    if step.is_group:
        return f"step {name!r} is a group: resolve one of its items, as in '{name}[0]'"
    return f"step {name!r} has no unknown effect to resolve (it is {step.status})"


def _definition(connection: Connection, row: ApprovalRow) -> Step:
    name, version, index = store.definition_of(connection, row.step_id)
    return GraphCache().get(connection, name, version).steps[index]


def _step(tx: Connection, locked: LockedTask, row: ApprovalRow) -> StepRow:
    (step_row,) = reads.steps_by_id(tx, STEP_COLUMNS, [row.step_id])
    return locked.add(StepRow.read(step_row))


def _renewed_as(connection: Connection, row: ApprovalRow) -> str | None:
    for other in store.of_steps(connection, [row.step_id]):
        if other.renews == row.id:
            return other.id
    return None
