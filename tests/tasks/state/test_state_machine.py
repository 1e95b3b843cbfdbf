"""The state machines: every cell of state × event, and the CHECK constraints that agree with them."""

from collections.abc import Iterator

import pytest

from agent.core.state_machine import (
    CALL,
    STEP,
    STEP_ENDED,
    TASK,
    TASK_ENDED,
    WORK,
    CallStatus,
    ForbiddenMoveError,
    Machine,
    StepStatus,
    TaskStatus,
    moved,
)
from agent.store.db.database import Connection, StoreError
from agent.store.db.dialect import Fault
from tests.support.engine import Hand, graph, step

# Written out once more, by hand: a change to the tables must be meant.
TASK_MOVES = {
    "pending": {"task.started": "running", "task.canceled": "canceled"},
    "running": {
        "task.paused": "paused",
        "task.succeeded": "succeeded",
        "task.failed": "failed",
        "task.canceled": "canceled",
    },
    "paused": {"task.resumed": "running", "task.canceled": "canceled"},
    "succeeded": {},
    "failed": {},
    "canceled": {},
}
STEP_MOVES = {
    "pending": {
        "step.claimed": "running",
        "step.failed": "failed",
        "step.skipped": "skipped",
    },
    "running": {
        "step.succeeded": "succeeded",
        "step.failed": "failed",
        "step.retried": "pending",
        "step.lost": "pending",
        "step.returned": "pending",
        "step.waiting": "waiting",
        "step.paused": "paused",
        "step.skipped": "skipped",
    },
    "waiting": {
        "step.succeeded": "succeeded",
        "step.failed": "failed",
        "step.retried": "pending",
        "step.woken": "pending",
        "step.skipped": "skipped",
    },
    "paused": {"step.resumed": "pending", "step.skipped": "skipped"},
    "succeeded": {},
    "failed": {},
    "skipped": {},
}
CALL_MOVES = {
    "unknown": {
        "tool_call.succeeded": "succeeded",
        "tool_call.failed": "failed",
        "tool_call.resolved": "succeeded",
    },
    "succeeded": {},
    "failed": {},
}
WORK_ENDS = {
    "work.completed": "completed",
    "work.failed": "failed",
    "work.expired": "expired",
    "work.withdrawn": "withdrawn",
}
WORK_MOVES = {
    "queued": {"work.leased": "leased", "work.withdrawn": "withdrawn"},
    "leased": {
        "work.started": "running",
        "work.released": "queued",
        "work.asked": "asked",
        **WORK_ENDS,
    },
    "running": {"work.released": "queued", "work.asked": "asked", **WORK_ENDS},
    "asked": {"work.answered": "queued", "work.withdrawn": "withdrawn"},
    "completed": {},
    "failed": {},
    "expired": {},
    "withdrawn": {},
}
MACHINES: list[tuple[str, Machine, dict[str, dict[str, str]]]] = [
    ("task", TASK, TASK_MOVES),
    ("step", STEP, STEP_MOVES),
    ("call", CALL, CALL_MOVES),
    ("work", WORK, WORK_MOVES),
]


def _cells() -> Iterator[object]:
    for name, machine, moves in MACHINES:
        for state in moves:
            for event in machine:
                target = moves[state].get(event)
                yield pytest.param(machine, state, event, target, id=f"{name}-{state}-{event}")


@pytest.mark.parametrize(("machine", "state", "event", "target"), list(_cells()))
def test_every_cell_of_state_and_event(
    machine: Machine, state: str, event: str, target: str | None
) -> None:
    """An allowed event leads to its target; every other one is refused with a message."""
    if target is not None:
        assert moved(machine, event, state) == target
        return
    with pytest.raises(ForbiddenMoveError, match=f"{event} cannot happen in state '{state}'"):
        moved(machine, event, state)


def test_the_matrix_covers_every_state_and_event() -> None:
    """No state and no event is left out of the tables above."""
    assert set(TASK_MOVES) == set(TaskStatus)
    assert set(STEP_MOVES) == set(StepStatus)
    assert set(CALL_MOVES) == set(CallStatus)
    for _, machine, moves in MACHINES:
        assert {event for cells in moves.values() for event in cells} == set(machine)


def test_nothing_leaves_an_ended_state() -> None:
    """The ended states are exactly those that no event leaves."""
    assert {state for state, cells in TASK_MOVES.items() if not cells} == TASK_ENDED
    assert {state for state, cells in STEP_MOVES.items() if not cells} == STEP_ENDED


def _is_refused(connection: Connection, sql: str, **parameters: object) -> bool:
    """Whether a constraint refuses a statement; its transaction is undone either way."""

    class UndoneError(Exception):
        pass

    try:
        with connection.transaction():
            assert connection.execute(sql, **parameters) == 1
            raise UndoneError
    except UndoneError:
        return False
    except StoreError as error:
        assert error.fault is Fault.DATA
        return True


def test_the_tables_accept_exactly_these_states(hand: Hand) -> None:
    """Every state of a machine can be stored and no other, on both databases."""
    task_id = hand.start(graph(step("a")), slots=0)
    with hand.database.connect("writer") as connection:
        for status in (*TaskStatus, "done", ""):
            refused = _is_refused(
                connection, "UPDATE tasks SET status = :to WHERE id = :id", to=status, id=task_id
            )
            assert refused is (status not in set(TaskStatus)), status
        for status in (*StepStatus, "canceled", "done"):
            owner = "w" if status == "running" else None
            refused = _is_refused(
                connection,
                "UPDATE steps SET status = :to, owner = :owner, claim_turn = :turn"
                " WHERE task_id = :id",
                to=status,
                owner=owner,
                turn=1 if owner else None,
                id=task_id,
            )
            assert refused is (status not in set(StepStatus)), status


def test_a_claim_is_complete_or_absent(hand: Hand) -> None:
    """Owner and `claim_turn` are set on a running step and null on every other."""
    task_id = hand.start(graph(step("a")), slots=0)
    with hand.database.connect("writer") as connection:
        for status in StepStatus:
            for owner, turn in ((None, None), ("w", 1), ("w", None), (None, 1)):
                refused = _is_refused(
                    connection,
                    "UPDATE steps SET status = :to, owner = :owner, claim_turn = :turn"
                    " WHERE task_id = :id",
                    to=status,
                    owner=owner,
                    turn=turn,
                    id=task_id,
                )
                wanted = ("w", 1) if status == "running" else (None, None)
                assert refused is ((owner, turn) != wanted), (status, owner, turn)
