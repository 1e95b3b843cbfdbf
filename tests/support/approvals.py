"""Steps that ask, and people who answer."""

from typing import Any

from agent.approvals import answering, approval_documents
from agent.approvals.answering import Answered, AnswerVerb, Verdict, answer
from agent.approvals.permission import ALL_SCOPES, Principal, terminal_user
from agent.core.clock import Clock
from agent.steps.attempt import prepare
from agent.steps.types.outcome import Json, Waiting
from agent.store.db.database import Database
from agent.tasks.operator.operator import CommandResult
from agent.workflows.graph import Graph, Step
from tests.support.engine import NOW, Engine, Hand, Reader, eventually, graph, other, step
from tests.support.step_functions import Gate

MESSAGE = "Pay 12 to Ada?"
_IDENTITY = {"by", "channel", "is_paired"}


def token() -> str:
    """Return a name under which a step's runs are counted."""
    return Gate().name


def gated(name: str, counted: str, /, after: tuple[str, ...] = (), **asking: Any) -> Step:
    """Return a step that counts its runs, behind a gate."""
    given = {"token": counted, "value": asking.pop("value", 12)}
    return step(
        name, "record", after, given=given, approval={"message": MESSAGE, **asking}, retry=NOW
    )


def asks(name: str, kind: str = "approval", /, **config: Any) -> Step:
    """Return a step that asks by itself."""
    return other(name, kind, config={"message": MESSAGE, **config})


def resolve(
    database: Database,
    task_id: str,
    step_name: str,
    verdict: Verdict,
    output: Json = None,
    *,
    by: str = "the operator",
    clock: Clock | None = None,
) -> CommandResult:
    """Say what became of a step's unknown effect, as a person at a terminal."""
    return answering.resolve(
        database, task_id, step_name, verdict, output, principal=terminal_user(by), clock=clock
    )


def pending(reader: Reader, task_id: str | None = None) -> list[dict[str, Any]]:
    """Return what waits for an answer."""
    with reader.database.connect("reader") as connection:
        return approval_documents.list_approvals(connection, task_id=task_id)


def everything(reader: Reader, task_id: str | None = None) -> list[dict[str, Any]]:
    """Return all approvals, the oldest first."""
    with reader.database.connect("reader") as connection:
        return approval_documents.list_approvals(connection, is_all=True, task_id=task_id)[::-1]


def question(reader: Reader, task_id: str, other_than: str | None = None) -> dict[str, Any]:
    """Wait until one thing is asked in a task, and return it."""
    return (
        eventually(
            lambda: next(
                (found for found in pending(reader, task_id) if found["id"] != other_than), None
            ),
            lambda: reader.document(task_id),
        )
        or {}
    )


def asked(engine: Engine, *steps: Step, **options: Any) -> tuple[str, dict[str, Any]]:
    """Submit a task and wait for its question."""
    task_id = engine.submit(graph(*steps, **options))
    return task_id, question(engine, task_id)


def say(
    reader: Reader, approval: dict[str, Any] | str, decision: AnswerVerb, **more: Any
) -> Answered:
    """Answer as Ada at the terminal."""
    approval_id = approval if isinstance(approval, str) else approval["id"]
    principal = caller(**{key: more.pop(key) for key in _IDENTITY & more.keys()})
    return answer(reader.database, approval_id, decision, principal=principal, **more)


def caller(by: str = "ada", channel: str = "terminal", *, is_paired: bool = False) -> Principal:
    """Return a caller with every scope."""
    return Principal(channel, by, ALL_SCOPES, is_paired=is_paired)


def parked(hand: Hand, **asking: Any) -> str:
    """Return a task whose one step has asked, as its attempt would."""
    definition, _ = one_step(**asking)
    task_id = hand.start(definition)
    claimed = hand.claimed("pay", task_id)
    outcome = prepare.approved_config(
        claimed,
        prepare.prepare_step(claimed.step),
        record=lambda _: None,
        record_open_gate=lambda: None,
    )
    assert isinstance(outcome, Waiting)
    hand.settle({"pay": outcome}, task_id)
    return task_id


def one_step(name: str = "tested", **asking: Any) -> tuple[Graph, str]:
    """Return a workflow of one gated step, and the token of its runs."""
    counted = token()
    return graph(gated("pay", counted, **asking), name=name), counted
