"""The event `task.activity_changed`: a task with work for external workers waits, or goes on."""

import pytest

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
    """However often the engine checks a lease that its worker extends, the task only waits."""
    task = bench.hand.start(graph(worker_step(), step("after", after=["w"])))
    bench.offer()
    lease = bench.claim(must_start=True)
    for _ in range(3):
        bench.pass_time(50)
        bench.call(lease, "heartbeat")
    assert activities(bench, task) == ["waiting"]
    bench.complete(lease)
    assert activities(bench, task) == ["waiting", "running"]


def test_a_delay_between_attempts_is_waiting(bench: WorkBench) -> None:
    """The task goes on when the delay is over and the next attempt is claimed."""
    later = RetryPolicy(max_attempts=3, delay_seconds=30, jitter=False)
    task = bench.hand.start(graph(worker_step(retry=later)))
    bench.offer()
    bench.claim(must_start=True)
    bench.pass_time(61)
    assert bench.work_statuses() == ["expired"] and bench.hand.names() == []
    assert activities(bench, task) == ["waiting"]
    bench.pass_time(31)
    assert bench.hand.names() == ["w"]
    bench.offer()
    assert activities(bench, task) == ["waiting", "running", "waiting"]
