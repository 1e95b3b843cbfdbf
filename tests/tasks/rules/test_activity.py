"""The event `task.activity_changed`: a task with work for external workers waits, or goes on."""

import pytest

from agent.store.read import health
from agent.store.read.activity import Activity
from agent.store.read.task_list import TaskFilter
from agent.tasks.read_models import task_list
from agent.workflows.graph import RetryPolicy
from tests.support.engine import Hand, graph, step
from tests.support.work_bench import WorkBench, worker_step


@pytest.fixture
def bench(hand: Hand) -> WorkBench:
    """Return a bench on each database."""
    return WorkBench(hand)


def activities(bench: WorkBench, task: str) -> list[str]:
    """Return what the events of a task say of its activity."""
    return [
        data["activity"]
        for type_, _, _, data in bench.hand.events(task)
        if type_ == "task.activity_changed"
    ]


def test_a_check_of_a_lease_is_no_change(bench: WorkBench) -> None:
    """However often the engine checks a lease that its worker extends, the task runs."""
    task = bench.hand.start(graph(worker_step(), step("after", after=["w"])))
    bench.offer()
    lease = bench.claim(must_start=True)
    for _ in range(3):
        bench.pass_time(50)
        bench.call(lease, "heartbeat")
    assert activities(bench, task) == ["waiting", "running"]
    bench.complete(lease)
    assert activities(bench, task) == ["waiting", "running"], "the next step is claimed at once"


def test_a_delay_between_attempts_is_waiting(bench: WorkBench) -> None:
    """The task goes on when the delay is over and the next attempt is claimed."""
    later = RetryPolicy(max_attempts=3, delay_seconds=30, jitter=False)
    task = bench.hand.start(graph(worker_step(retry=later)))
    bench.offer()
    bench.claim(must_start=True)
    assert activities(bench, task) == ["waiting", "running"]
    bench.pass_time(61)
    assert bench.work_statuses() == ["expired"] and bench.hand.names() == []
    assert activities(bench, task) == ["waiting", "running", "waiting"]
    bench.pass_time(31)
    assert bench.hand.names() == ["w"]
    bench.offer()
    assert activities(bench, task) == ["waiting", "running", "waiting", "running", "waiting"]


def listed(bench: WorkBench) -> dict[str, list[str]]:
    """Return the names of the workflows that each activity lists, as documents name it too."""
    found = {}
    with bench.hand.database.connect("reader") as connection:
        for activity in (Activity.RUNNING, Activity.WAITING):
            rows = task_list.list_tasks(connection, TaskFilter(activities=(activity,)))
            assert {row["activity"] for row in rows} <= {activity}
            found[str(activity)] = sorted(row["workflow"] for row in rows)
            assert health.activity_counts(connection).get(activity, 0) == len(rows)
    return found


def test_a_task_runs_while_a_worker_has_its_step(bench: WorkBench) -> None:
    """From the lease until the worker asks, releases or reports; everywhere it is listed so."""
    task = bench.hand.start(graph(worker_step(), name="one"))
    bench.offer()
    assert listed(bench) == {"running": [], "waiting": ["one"]}
    lease = bench.claim()
    assert listed(bench) == {"running": ["one"], "waiting": []}
    assert bench.hand.document(task)["activity"] == "running"
    bench.call(lease, "release")
    assert listed(bench) == {"running": [], "waiting": ["one"]}
    lease = bench.claim(must_start=True)
    bench.call(lease, "ask", question={"message": "really?"})
    assert listed(bench) == {"running": [], "waiting": ["one"]}
    assert activities(bench, task) == ["waiting", "running", "waiting", "running", "waiting"]


def test_a_task_waits_when_no_worker_has_any_of_its_steps(bench: WorkBench) -> None:
    """Steps that a transaction has not read count too."""
    task = bench.hand.start(graph(worker_step("a"), worker_step("b")))
    bench.offer("a")
    bench.offer("b")
    first = bench.claim()
    bench.hand.committer.cache.empty()
    second = bench.claim()
    bench.call(first, "release")
    assert activities(bench, task) == ["waiting", "running"]
    bench.call(second, "release")
    assert activities(bench, task) == ["waiting", "running", "waiting"]
