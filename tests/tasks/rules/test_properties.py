"""Properties: keys, backoff, liveness, and random graphs with random outcomes, all in memory."""

import time
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.core.clock import SECOND
from agent.core.ids import canonical_json, first_id_at, idempotency_key, new_id, remote_key
from agent.core.state_machine import STEP_ENDED, TASK_ENDED, StepStatus
from agent.core.waits import Timer
from agent.steps.types.outcome import Outcome, Paused, Returned, Succeeded, Waiting
from agent.store.db.database import Connection
from agent.tasks.rescue.failure_detector import FailureDetector
from agent.tasks.rules import advance, claiming, creation, settlement
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.settlement import Claim
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.tasks.state.transitions import SKIPPED_BY_FAILURE
from agent.workflows.graph import Graph, RetryPolicy
from tests.support.engine import ERROR, FAILURE, RETRY
from tests.support.random_graphs import graphs

RELAXED = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NO_DATABASE = cast("Connection", None)
"""A new task is whole in memory: nothing of it is ever read."""

texts = st.text(max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@RELAXED
@given(st.tuples(texts, texts, texts, texts), st.tuples(texts, texts, texts, texts))
def test_keys_are_equal_only_for_equal_fields(
    one: tuple[str, str, str, str], two: tuple[str, str, str, str]
) -> None:
    """However their parts run together, two different calls have different keys."""

    def both(fields: tuple[str, str, str, str]) -> tuple[str, str]:
        task, name, action, digest = fields
        return (
            idempotency_key(task, name, 1, action, digest),
            remote_key(task, name, action, digest, 0),
        )

    for key, same in zip(both(one), both(two), strict=True):
        assert (key == same) == (one == two)
    task, name, action, digest = one
    assert idempotency_key(task, name, 1, action, digest) != idempotency_key(
        task, name, 2, action, digest
    )
    assert remote_key(task, name, action, digest, 0) != remote_key(task, name, action, digest, 1)


@RELAXED
@given(plain)
def test_equal_values_have_one_encoding(value: Any) -> None:
    """The order of keys does not matter, and nothing else is lost."""
    text = canonical_json(value)
    turned = _turned(value)
    assert canonical_json(turned) == text


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(list(value))}
    return [_turned(member) for member in value] if isinstance(value, list) else value


def test_ids_sort_by_time() -> None:
    """Ids sort in the order of their creation, and between the instants around them."""
    before = first_id_at(time.time_ns() // 1000)
    made = [new_id() for _ in range(100)]
    after = first_id_at(time.time_ns() // 1000 + 2 * SECOND)
    assert made == sorted(made) and len(set(made)) == 100
    assert before <= made[0] and made[-1] < after


@RELAXED
@given(
    st.floats(0, 1000),
    st.floats(1, 100),
    st.floats(0, 10_000),
    st.integers(1, 1000),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 10_000),
)
def test_backoff_stays_within_its_bounds(
    delay: float, factor: float, cap: float, attempt: int, fraction: float, asked: float | None
) -> None:
    """Never over the cap, never under the requested delay, never shrinking, never an error."""
    policy = RetryPolicy(delay_seconds=delay, factor=factor, max_delay_seconds=cap)
    delay_seconds = policy.delay_after(attempt, fraction, asked)
    assert (asked or 0) <= delay_seconds <= max(cap, asked or 0)
    steady = policy.model_copy(update={"jitter": False})
    assert delay_seconds <= max(steady.delay_after(attempt, fraction), asked or 0)
    assert steady.delay_after(attempt, 0) <= steady.delay_after(attempt + 1, 0)


@RELAXED
@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=30))
def test_only_observed_silence_declares_a_worker_dead(polls: list[tuple[float, bool]]) -> None:
    """A worker is dead after a lease without a commit, as far as the observer could see."""
    liveness = FailureDetector(lease_seconds=60)
    now, commits, silent = 0.0, 0, None
    for pause, has_moved in polls:
        now += pause
        commits += has_moved
        # A long gap may be the observer's own delay: it counts as a third of a lease.
        silent = 0.0 if has_moved or silent is None else silent + min(pause, 20)
        found = liveness.observe([("w", commits)], now)
        assert found == ([("w", commits)] if silent > 60 else [])


class Walk:
    """A task in memory whose attempts end as hypothesis decides."""

    def __init__(self, graph: Graph) -> None:
        submission = Submission(graph=graph)
        self.locked: LockedTask = creation.create(NO_DATABASE, submission, 1, 1)
        self.commits = 0
        self.begun: set[tuple[int, int]] = set()
        self.has_missed_deadline = False

    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.locked.task.status in TASK_ENDED

    def running(self) -> list[StepRow]:
        """Return the claimed steps."""
        return [step for step in self.locked.steps.values() if step.status == StepStatus.RUNNING]

    def claim(self, slots: int) -> None:
        """Claim what is due."""
        self.commits += 1
        capacity = ClaimCapacity(slots, len(self.running()), SECOND, "w", self.commits)
        for _, step in claiming.claim([self.locked], capacity).steps:
            place = (step.index, step.parallel_index)
            assert step.attempt <= step.max_attempts
            if not step.is_item:
                for parent in self.locked.graph.parents[step.index]:
                    assert self.locked.steps[(parent, -1)].status in STEP_ENDED
            self.begun.add(place)

    def settle(self, outcomes: list[tuple[StepRow, Outcome]]) -> None:
        """Apply outcomes in one transaction, as a commit does."""
        locked = self.locked
        locked.now += 1
        locked.admissions = 500
        for step, outcome in outcomes:
            claim = Claim(
                locked.task.id,
                step.id,
                step.index,
                step.parallel_index,
                step.attempt,
                step.claim_token,
            )
            assert settlement.settle(NO_DATABASE, locked, claim, outcome, "w")
        advance.advance(NO_DATABASE, locked)
        self.check()

    def wake(self) -> None:
        """Let the timers of waiting steps pass."""
        self.locked.now += 1
        for step in list(self.locked.steps.values()):
            if step.status == StepStatus.WAITING and not step.is_group:
                transitions.wake(self.locked, step)
        advance.advance(NO_DATABASE, self.locked)
        self.check()

    def disturb(self, what: str) -> None:
        """Apply an outside event: a pause, its end, a lost worker, the task's deadline."""
        locked, task = self.locked, self.locked.task
        locked.now += 1
        if what == "pause" and task.status == "running":
            transitions.move_task(locked, "task.paused")
        elif what == "resume" and task.status == "paused":
            transitions.move_task(locked, "task.resumed")
            for step in list(locked.steps.values()):
                if step.status == StepStatus.PAUSED:
                    transitions.resume_step(locked, step)
        elif what == "lose" and task.phase != "failing":
            for step in self.running():
                if step.attempt < step.max_attempts:
                    transitions.lose(locked, step, locked.now, ERROR, must_isolate=True)
        elif what == "deadline" and task.status == "running" and task.phase == "normal":
            self.has_missed_deadline = True
            task.deadline = locked.now
        advance.advance(NO_DATABASE, locked)
        self.check()

    def check(self) -> None:
        """Check the counters and the concurrency limits against the rows."""
        task, steps = self.locked.task, list(self.locked.steps.values())
        assert task.steps_open == sum(step.status not in STEP_ENDED for step in steps)
        assert task.steps_running == len(self.running())
        assert task.steps_failed == sum(step.status == StepStatus.FAILED for step in steps)
        assert task.steps_held == sum(step.held for step in steps)
        assert task.places_taken == sum(step.placed for step in steps)
        limit = self.locked.graph.max_parallel
        assert limit is None or task.places_taken <= limit
        for group in (step for step in steps if step.is_group):
            items = [step for step in steps if step.is_item and step.index == group.index]
            placed = sum(item.placed for item in items)
            fanout = self.locked.graph.steps[group.index].fanout
            assert fanout is not None
            assert fanout.concurrency is None or placed <= fanout.concurrency
            assert group.items_placed == len(items)
            assert group.items_ended == sum(item.status in STEP_ENDED for item in items)
        numbers = [event[1] for event in self.locked.events]
        assert numbers == list(range(1, len(numbers) + 1))

    def check_end(self) -> None:
        """Check every step's end against the rules of its dependencies."""
        graph, steps = self.locked.graph, self.locked.steps
        assert all(step.status in STEP_ENDED for step in steps.values())
        any_failed = any(step.status == StepStatus.FAILED for step in steps.values())
        has_failed = any_failed or self.has_missed_deadline
        assert self.locked.task.status == ("failed" if has_failed else "succeeded")
        for index, definition in enumerate(graph.steps):
            parents = [steps[(parent, -1)] for parent in graph.parents[index]]
            is_bad = any(_by_failure(parent) for parent in parents)
            has_begun = (index, -1) in self.begun
            if definition.run_on == "success" and is_bad:
                assert not has_begun
            if definition.run_on == "failure":
                assert has_begun == is_bad
            if definition.run_on == "always":
                assert has_begun
            if definition.run_on == "success" and not is_bad and not has_begun:
                assert self.has_missed_deadline or (any_failed and graph.fail_fast)


def _by_failure(step: StepRow) -> bool:
    if step.status == StepStatus.FAILED:
        return True
    reason = step.extra.get("skip_reason")
    return step.status == StepStatus.SKIPPED and reason in SKIPPED_BY_FAILURE


def _outcome(draw: Any, locked: LockedTask, step: StepRow) -> Outcome:
    if locked.definition(step).fanout is not None and not step.is_item:
        items = list(range(draw(st.integers(0, 4))))
        return draw(  # type: ignore[no-any-return]
            st.sampled_from([Succeeded(items=items), Succeeded(items=items), FAILURE])
        )
    choices = [
        Succeeded(1),
        Succeeded(1),
        Succeeded(1),
        Succeeded(skipped="if"),
        FAILURE,
        RETRY,
        Returned("shutdown"),
        Paused(1),
        Waiting(Timer(1), wake_at=2**60),
    ]
    return draw(st.sampled_from(choices))  # type: ignore[no-any-return]


@RELAXED
@given(graphs(), st.data())
def test_every_graph_ends_with_correct_counters(graph: Graph, data: st.DataObject) -> None:
    """Whatever attempts return, in whatever order and batch, the task ends as the rules say."""
    walk = Walk(graph)
    walk.check()
    rounds = 0
    while not walk.is_over():
        rounds += 1
        # After a while everything works, so that what may be given back for ever ends.
        is_late = rounds > 60
        chances = (
            ["resume"] if is_late else [*["nothing"] * 6, "pause", "resume", "lose", "deadline"]
        )
        walk.disturb(data.draw(st.sampled_from(chances)))
        if walk.is_over():
            break
        walk.claim(data.draw(st.integers(1, 4)))
        running = walk.running()
        if not running:
            waiting = [
                step
                for step in walk.locked.steps.values()
                if step.status == StepStatus.WAITING and not step.is_group
            ]
            if not waiting:
                assert walk.locked.task.status == "paused", "nothing runs, and nothing waits"
                walk.disturb("resume")
                continue
            walk.wake()
            continue
        count = data.draw(st.integers(1, len(running)))
        outcomes: list[tuple[StepRow, Outcome]] = []
        for step in running[:count]:
            is_group = walk.locked.definition(step).fanout is not None and not step.is_item
            if is_late:
                outcomes.append((step, Succeeded(items=[]) if is_group else Succeeded(1)))
            else:
                outcomes.append((step, _outcome(data.draw, walk.locked, step)))
        walk.settle(outcomes)
        assert rounds < 500
    walk.check_end()
