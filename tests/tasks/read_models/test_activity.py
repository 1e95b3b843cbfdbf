"""`activity` is the stored status, except that a running task whose steps only wait is `waiting`."""

from collections.abc import Callable

import pytest

from agent.core.state_machine import TaskStatus
from agent.core.waits import ChildRequest, Signal, Timer, UnknownCall
from agent.steps.types.outcome import Question, Retry, StepError, Succeeded, Waiting
from agent.store.read.activity import Activity
from agent.store.read.task_list import TaskFilter
from agent.tasks.read_models import task_list
from agent.workflows.graph import Fanout, RetryPolicy
from tests.support.child_tasks import register
from tests.support.engine import Hand, graph, other, step
from tests.support.interventions import intend
from tests.support.task_states import arrange

FAR = 4_000_000_000_000_000


def _of(hand: Hand, task_id: str) -> str:
    """Return a task's activity, which the document, the list and the filter must agree on."""
    found = str(hand.document(task_id)["activity"])
    with hand.database.connect("reader") as connection:
        (listed,) = [t for t in task_list.list_tasks(connection) if t["id"] == task_id]
        filtered = {
            activity
            for activity in Activity
            if task_id in _ids(task_list.list_tasks(connection, TaskFilter(activities=(activity,))))
        }
    assert listed["activity"] == found
    assert filtered == {found}, "each task has one activity"
    return found


def _ids(documents: list[dict[str, object]]) -> set[object]:
    return {document["id"] for document in documents}


def test_activities_are_the_statuses_and_waiting() -> None:
    """The stored statuses keep their meaning."""
    assert set(Activity) == {*map(str, TaskStatus), "waiting"}


@pytest.mark.parametrize("status", TaskStatus)
def test_other_statuses_are_their_own_activity(hand: Hand, status: TaskStatus) -> None:
    """Steps of a paused, ended or unstarted task may wait: only a running task is `waiting`."""
    task_id = arrange(hand, status)
    expected = "waiting" if status == TaskStatus.RUNNING else status
    assert _of(hand, task_id) == expected
    assert hand.document(task_id)["status"] == status, "the stored status is what it was"


def _asks(_: Hand) -> Waiting:
    return Waiting(Question("approval", "May it?", {}))


def _unknown(hand: Hand) -> Waiting:
    return Waiting(UnknownCall(intend(hand, hand.claimed("a"))))


def _child(hand: Hand) -> Waiting:
    register(hand, graph(step("c"), name="child"))
    return Waiting(ChildRequest("child", {}))


@pytest.mark.parametrize(
    "wait",
    [
        lambda _: Waiting(Timer(FAR), FAR),
        lambda _: Waiting(Signal("go")),
        _asks,
        _unknown,
        _child,
    ],
    ids=["timer", "signal", "approval", "unknown", "child"],
)
def test_a_task_whose_steps_only_wait_is_waiting(
    hand: Hand, wait: Callable[[Hand], Waiting]
) -> None:
    """Whatever they wait on; a step that depends on them does not count."""
    first = other("a", "workflow", config={"name": "child"}) if wait is _child else step("a")
    task_id = hand.start(graph(first, step("b", after=["a"])))
    assert _of(hand, task_id) == "running"
    hand.settle({"a": wait(hand)})
    assert _of(hand, task_id) == "waiting"
    (on,) = hand.document(task_id)["waiting_on"]
    assert on["step"] == "a"


def test_a_task_that_also_runs_is_running(hand: Hand) -> None:
    """One step that runs, or is ready to run, is enough; the waits are still listed."""
    task_id = hand.start(graph(step("a"), step("b"), step("c", after=["b"])))
    hand.settle({"a": Waiting(Signal("go"))})
    assert _of(hand, task_id) == "running"
    assert [on["step"] for on in hand.document(task_id)["waiting_on"]] == ["a"]
    hand.slots = 0
    hand.settle({"b": Succeeded(1)})
    assert hand.statuses(task_id)["c"] == "pending"
    assert _of(hand, task_id) == "running", "c is ready, and only a slot is missing"


def test_a_task_between_two_attempts_is_waiting(hand: Hand) -> None:
    """Nothing of the task runs meanwhile."""
    task_id = hand.start(graph(step("a", retry=RetryPolicy(max_attempts=3))))
    hand.settle({"a": Retry(StepError("gone", "remote", "try later"), delay_seconds=3600)})
    assert _of(hand, task_id) == "waiting"
    assert "retry_at" in hand.document(task_id)["waiting_on"][0]


def test_a_group_is_waiting_when_its_items_are(hand: Hand) -> None:
    """A group's row always waits on its items: their state decides."""
    each = other("each", "wait", config={"signal": "go"}, fanout=Fanout(count=2, concurrency=1))
    task_id = hand.start(graph(each))
    assert _of(hand, task_id) == "running"
    hand.settle({"each": Succeeded(items=[1, 2])})
    assert _of(hand, task_id) == "running", "the first item runs"
    hand.settle({"each[0]": Waiting(Signal("go"))})
    assert _of(hand, task_id) == "waiting", "the second is held back by the window"
    assert [on["step"] for on in hand.document(task_id)["waiting_on"]] == ["each[0]"]


@pytest.mark.parametrize("beside", [None, _asks, _unknown])
def test_the_list_names_a_signal_only_where_nothing_else_is_waited_for(
    hand: Hand, beside: Callable[[Hand], Waiting] | None
) -> None:
    """A task that also asks a person is not shown as one that a signal lets go on."""
    hand.start(graph(step("a"), step("b")))
    other_wait = Waiting(Signal("go")) if beside is None else beside(hand)
    hand.settle({"a": other_wait, "b": Waiting(Signal("go"))})
    with hand.database.connect("reader") as connection:
        (listed,) = task_list.list_tasks(connection)
    assert listed["waits"] == 2
    assert listed["signal"] == ("go" if beside is None else None)
