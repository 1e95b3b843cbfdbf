"""Work for external workers: leases, results, expiry, and what a late worker can still do."""

import pytest

from agent import recovery
from agent.approvals import answering
from agent.approvals.permission import terminal_user
from agent.core.clock import SECOND
from agent.steps.types.outcome import Succeeded
from agent.store.db.database import Database
from agent.store.engine import reads
from agent.tasks.rules.claiming import AnsweredTime
from agent.tasks.rules.external_work.work_parts import ClaimResult, LeaseResult, WorkClaim
from agent.tasks.state.rows import TASK_COLUMNS
from agent.workflows.graph import Fanout, RetryPolicy
from tests.support.engine import Hand, graph, step
from tests.support.round_trips import count_round_trips
from tests.support.work_bench import QUEUE, WorkBench, call_of, worker_step


@pytest.fixture
def bench(hand: Hand) -> WorkBench:
    """Return a bench on each database."""
    return WorkBench(hand)


def test_work_is_claimed_begun_and_completed(bench: WorkBench) -> None:
    """The step waits on its work, holds no slot, and succeeds with the worker's output."""
    task = bench.hand.start(graph(worker_step(), step("after", after=["w"])))
    bench.offer(given={"x": 1})
    (waiting,) = bench.hand.document(task)["waiting_on"]
    assert waiting["queue"] == QUEUE and bench.hand.running == {}
    lease = bench.claim()
    assert bench.work()[0]["leased_by"] == "tester"
    assert bench.call(lease, "running").directive == "continue"
    done = bench.complete(lease, {"y": 2})
    assert (done.step_status, done.is_late) == ("succeeded", False)
    assert bench.hand.steps(task)["w"]["output"] == {"y": 2}
    assert bench.hand.names() == ["after"], "the next step is claimed in the same commit"
    assert bench.work()[0] | {"call_id": None} == {
        "status": "completed",
        "attempt": 1,
        "lease_id": None,
        "leased_by": None,
        "lease_expires_at": None,
        "call_id": None,
    }
    types = bench.hand.types(task, "w")
    assert types == [
        "step.claimed",
        "step.waiting",
        "step.leased",
        "step.started",
        "step.succeeded",
    ]


def test_work_is_leased_once_and_in_order(bench: WorkBench) -> None:
    """Claims get the oldest work first, as much as they ask for, and each piece goes to one of them."""
    for _ in range(3):
        bench.offer(task_id=bench.hand.start(graph(worker_step())))
    claims = [WorkClaim(frozenset((QUEUE,)), name, 2) for name in ("one", "two")]
    got = [result.leased for _, result in bench.commit(*claims).worked]  # type: ignore[union-attr]
    assert [len(leased) for leased in got] == [2, 1]
    assert bench.claim_all() == [] and bench.claim_all(queue="other") == []
    ids = [leased.row.id for some in got for leased in some]
    assert ids == sorted(set(ids))


def test_a_result_and_the_next_claim_take_three_round_trips(
    bench: WorkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that can be read at once, the locks of what is claimed, and the writes with the COMMIT."""
    for _ in range(3):
        bench.offer(task_id=bench.hand.start(graph(worker_step())))
    lease = bench.claim(client_token="t1")
    claim = WorkClaim(frozenset((QUEUE,)), "tester", client_token="t2")
    done = call_of(lease, "complete", text="1", output=1)
    trips = count_round_trips(monkeypatch)
    ended, claimed = (result for _, result in bench.commit(done, claim).worked)
    assert isinstance(ended, LeaseResult) and ended.step_status == "succeeded"
    assert isinstance(claimed, ClaimResult) and len(claimed.leased) == 1
    assert len(trips) == (0 if bench.hand.database.is_sqlite else 3)


def test_claims_of_one_commit_get_work_of_their_own_queues(bench: WorkBench) -> None:
    """A long queue leaves no claim of another queue without the work that there is."""
    for _ in range(12):
        bench.offer(task_id=bench.hand.start(graph(worker_step())))
    late = bench.hand.start(graph(worker_step(queue="rare")))
    bench.offer(task_id=late, queue="rare")
    claims = [WorkClaim(frozenset((name,)), "tester") for name in (QUEUE, "rare")]
    results = [result for _, result in bench.commit(*claims).worked]
    queues = [
        leased.row.queue
        for result in results
        if isinstance(result, ClaimResult)
        for leased in result.leased
    ]
    assert queues == [QUEUE, "rare"]


def test_a_repeated_claim_gets_the_same_lease(bench: WorkBench) -> None:
    """The token of a claim names it: its repetition gets the same lease, and nothing after the end."""
    for _ in range(2):
        bench.offer(task_id=bench.hand.start(graph(worker_step())))
    lease = bench.claim(client_token="t1")
    assert bench.claim(client_token="t1") == lease
    assert bench.claim(client_token="t2") != lease
    bench.complete(lease)
    assert bench.claim_all(client_token="t1") == []


def test_a_call_under_another_lease_changes_nothing(bench: WorkBench) -> None:
    """Only the present lease counts, and only for callers that may use its queue."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim()
    forged = lease[:-4] + "beef"
    before = bench.hand.everything()
    for action in (
        "running",
        "heartbeat",
        "checkpoint",
        "log",
        "complete",
        "fail",
        "release",
        "ask",
    ):
        assert bench.call(forged, action, text="1").lost == "released"
        assert bench.call(lease, action, may_use=lambda _: False, text="1").lost == "unknown"
    assert bench.hand.everything() == before
    assert bench.hand.status(task) == "running" and bench.work_statuses() == ["leased"]


def test_the_call_that_ended_a_lease_can_be_repeated(bench: WorkBench) -> None:
    """An answer that was lost is asked for again: it is the same, and another result is refused."""
    bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim()
    assert bench.complete(lease, 1).step_status == "succeeded"
    assert bench.complete(lease, 1).step_status == "succeeded"
    assert bench.call(lease, "fail").lost == "ended"
    assert bench.call(lease, "heartbeat").lost == "ended"


def test_a_failure_is_retried_until_attempts_are_used_up(bench: WorkBench) -> None:
    """Each failure counts; a final one ends the step at once."""
    task = bench.hand.start(graph(worker_step(retry=RetryPolicy(max_attempts=2, delay_seconds=0))))
    for attempt in (1, 2):
        bench.offer()
        lease = bench.claim(must_start=True)
        done = bench.call(lease, "fail", code="busy", message="no room")
        bench.hand.commit()
        assert done.step_status == ("pending" if attempt == 1 else "failed")
    assert bench.hand.status(task) == "failed"
    error = bench.hand.steps(task)["w"]["error"]
    assert (error["code"], error["attempt"]) == ("busy", 2)
    task = bench.hand.start(graph(worker_step()))
    bench.offer(task_id=task)
    assert bench.call(bench.claim(), "fail", is_retryable=False).step_status == "failed"


def test_a_release_before_the_beginning_uses_no_attempt(bench: WorkBench) -> None:
    """The work returns to its queue under the same attempt; one that had begun counts."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim()
    done = bench.call(lease, "release", message="shutting down", checkpoint='{"at": 1}')
    assert done.step_status == "waiting" and bench.work_statuses() == ["queued"]
    (leased,) = bench.claim_all()
    assert leased.row.attempt == 1 and leased.checkpoint == '{"at": 1}'
    assert leased.row.lease_id is not None and leased.row.lease_id != lease
    bench.call(leased.row.lease_id, "running")
    assert bench.call(leased.row.lease_id, "release", message="again").step_status == "pending"
    assert bench.hand.steps(task)["w"]["attempt"] == 2
    assert bench.call(lease, "complete").lost == "released"


def test_an_expired_lease_is_a_lost_attempt(bench: WorkBench) -> None:
    """After a lease without a sign the attempt is over and retried; its worker is refused."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.pass_time(59)
    assert bench.work_statuses() == ["running"]
    bench.call(lease, "heartbeat")
    bench.pass_time(59)
    assert bench.work_statuses() == ["running"], "the heartbeat extended it"
    bench.pass_time(2)
    assert bench.work_statuses() == ["expired"]
    assert bench.hand.names() == ["w"], "the next attempt is claimed"
    error = bench.hand.steps(task)["w"]["error"]
    assert error["code"] == "heartbeat_timeout" and "heartbeat timeout" in error["message"]
    assert "step.lease_expired" in bench.hand.types(task, "w")
    before = bench.hand.everything()
    assert bench.complete(lease).lost == "expired"
    assert bench.hand.everything() == before


def test_attempts_that_are_lost_never_exceed_the_maximum(bench: WorkBench) -> None:
    """A step whose workers all disappear fails with the reason of the last one."""
    task = bench.hand.start(graph(worker_step()))
    for _ in range(3):
        bench.offer()
        bench.claim()
        bench.pass_time(61)
    assert bench.hand.status(task) == "failed"
    assert bench.hand.steps(task)["w"]["error"]["code"] == "heartbeat_timeout"
    assert bench.claim_all() == []


def test_work_that_never_begins_fails(bench: WorkBench) -> None:
    """A claim is no beginning: without one in time the job never started, and is retried."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim()
    for _ in range(6):
        bench.pass_time(50)
        bench.call(lease, "heartbeat")
    bench.pass_time(1)
    error = bench.hand.steps(task)["w"]["error"]
    assert error["code"] == "never_started" and "job never started" in error["message"]
    assert bench.call(lease, "running").lost == "expired"


def test_work_that_takes_too_long_fails(bench: WorkBench) -> None:
    """The step's timeout counts from the beginning, whatever the heartbeats say."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer(timeout=100)
    lease = bench.claim(must_start=True)
    bench.pass_time(50)
    bench.call(lease, "heartbeat")
    bench.pass_time(51)
    error = bench.hand.steps(task)["w"]["error"]
    assert error["code"] == "execution_timeout" and "execution timeout" in error["message"]


@pytest.mark.parametrize("answering", [0, 30, 59])
def test_time_without_a_daemon_does_not_count(bench: WorkBench, answering: float) -> None:
    """A lease lasts at least one lease from the moment at which a daemon answers again."""
    bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.pass_time(10_000, answering_seconds=answering)
    assert bench.work_statuses() == ["running"]
    assert bench.call(lease, "heartbeat").lost is None
    bench.pass_time(61, answering_seconds=answering + 61)
    assert bench.work_statuses() == ["expired"]


def test_a_lease_given_while_the_clock_ran_ahead_ends_in_its_own_time(bench: WorkBench) -> None:
    """Once the clock is corrected, a worker that has gone does not hold its work for the days of the error."""
    bench.hand.skip(144 * 3600)
    bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.hand.skip(-144 * 3600)
    recovery.correct_waits(bench.hand.database, bench.hand.clock)
    bench.pass_time(30)
    assert bench.call(lease, "heartbeat").lost is None
    bench.pass_time(61)
    assert bench.work_statuses() == ["expired"]


def test_a_clock_that_jumps_inside_a_commit_expires_nothing(bench: WorkBench) -> None:
    """A lease is over by the time in which workers were answered, not by the transaction's own."""
    bench.hand.start(graph(worker_step()))
    bench.offer()
    bench.claim()
    before = bench.hand.clock.now()
    bench.hand.skip(3600)
    bench.hand.commit(answering=AnsweredTime(before - 3600 * SECOND, before))
    assert bench.work_statuses() == ["leased"]


def test_a_late_result_does_not_end_the_next_attempt(bench: WorkBench) -> None:
    """The work was offered again: the first worker's result is refused, and the step waits."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    late = bench.claim()
    bench.pass_time(61)
    bench.offer()
    bench.claim()
    assert bench.complete(late).lost == "expired"
    assert bench.hand.statuses(task) == {"w": "waiting"}


def test_a_process_that_answers_no_workers_expires_nothing(bench: WorkBench) -> None:
    """`agent run` without a daemon: workers cannot reach it."""
    bench.hand.start(graph(worker_step()))
    bench.offer()
    bench.claim()
    bench.hand.skip(10_000)
    bench.hand.commit()
    assert bench.work_statuses() == ["leased"]
    bench.pass_time(3)
    assert bench.work_statuses() == ["expired"], "another process that answers them sees to it soon"


def test_an_effect_whose_lease_expires_is_unknown(bench: WorkBench) -> None:
    """Its intent was recorded with the beginning; the ledger keeps it as unknown."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer(is_effect=True)
    lease = bench.claim()
    assert bench.hand.rows("SELECT count(*) FROM tool_calls") == [(0,)], "a claim is no beginning"
    bench.call(lease, "running")
    bench.pass_time(61)
    assert bench.hand.rows("SELECT status FROM idempotency_outcomes") == [("unknown",)]
    assert "tool_call.unknown" in bench.hand.types(task)
    assert bench.hand.claimed("w").calls[0].status == "unknown"


def test_a_late_result_settles_its_own_unknown_effect(bench: WorkBench) -> None:
    """The worker reports after its lease: the effect is known, and the step's next attempt sees it."""
    bench.hand.start(graph(worker_step()))
    bench.offer(is_effect=True)
    lease = bench.claim(must_start=True)
    bench.pass_time(61)
    late = bench.complete(lease, {"sent": True})
    assert late.is_late and late.lost is None
    assert bench.hand.rows("SELECT status FROM idempotency_outcomes") == [("succeeded",)]
    assert bench.complete(lease).lost == "expired", "it is settled once"


def test_an_effect_that_never_began_is_not_unknown(bench: WorkBench) -> None:
    """A worker that disappears between its claim and its beginning has done nothing."""
    bench.hand.start(graph(worker_step()))
    bench.offer(is_effect=True)
    bench.claim()
    bench.pass_time(61)
    assert bench.hand.rows("SELECT count(*) FROM tool_calls") == [(0,)]
    assert bench.work_statuses() == ["expired"]


def test_a_result_without_a_beginning_is_recorded_whole(bench: WorkBench) -> None:
    """A worker may report before it said that it runs: intent and result are recorded together."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer(is_effect=True)
    bench.complete(bench.claim(), 5)
    assert bench.hand.rows("SELECT status FROM idempotency_outcomes") == [("succeeded",)]
    assert bench.hand.status(task) == "succeeded"


def test_a_canceled_task_withdraws_its_work(bench: WorkBench) -> None:
    """The lease ends with the task; a heartbeat says so, and a result is refused."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.hand.operator.cancel(task)
    assert bench.work()[0]["lease_id"] is None and bench.work_statuses() == ["withdrawn"]
    assert bench.call(lease, "heartbeat").directive == "cancel"
    assert bench.complete(lease).lost == "withdrawn"


def test_a_canceled_task_withdraws_work_whose_question_is_open(bench: WorkBench) -> None:
    """The question ends with it; the checker finds nothing that names it."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.call(lease, "ask", message="Which one?")
    assert bench.work_statuses() == ["asked"]
    bench.hand.operator.cancel(task)
    assert bench.work_statuses() == ["withdrawn"]


def test_the_failure_of_another_step_withdraws_work(bench: WorkBench) -> None:
    """With `fail_fast` the step is skipped, and its worker learns of it."""
    task = bench.hand.start(graph(worker_step(), step("other")))
    bench.offer()
    lease = bench.claim()
    bench.hand.fail("other")
    assert bench.hand.statuses(task)["w"] == "skipped" and bench.work_statuses() == ["withdrawn"]
    assert bench.call(lease, "heartbeat").directive == "cancel"


def test_a_paused_task_keeps_its_lease_and_gives_out_no_work(bench: WorkBench) -> None:
    """The worker learns of it; what it releases returns to the queue under the same attempt."""
    task = bench.hand.start(graph(worker_step(), worker_step("x")))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.offer("x")
    bench.hand.operator.pause(task)
    assert bench.claim_all() == []
    assert bench.call(lease, "heartbeat").directive == "pause"
    assert bench.call(lease, "release", message="paused").step_status == "waiting"
    bench.hand.operator.resume(task)
    assert len(bench.claim_all(limit=5)) == 2
    assert bench.hand.steps(task)["w"]["attempt"] == 1


def test_a_worker_asks_and_the_next_claim_has_the_answer(bench: WorkBench) -> None:
    """The step is parked with a question; the answer puts the work back into its queue."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    asked = bench.call(lease, "ask", message="which one?", question={"choices": ["a", "b"]})
    assert asked.approval_id is not None and bench.work_statuses() == ["asked"]
    assert bench.call(lease, "ask", message="which one?").approval_id == asked.approval_id
    assert bench.claim_all() == []
    answer(bench, asked.approval_id, "b")
    (leased,) = bench.claim_all()
    assert '"value": "b"' in (leased.row.answer or "") and leased.row.attempt == 1
    assert leased.row.lease_id is not None
    bench.complete(leased.row.lease_id)
    assert bench.hand.status(task) == "succeeded"


def answer(bench: WorkBench, approval_id: str, value: object) -> None:
    """Answer a question as a person would."""
    person, database = terminal_user("tester"), bench.hand.database
    answering.answer(database, approval_id, "answer", principal=person, value=value)


def test_items_of_a_group_are_work_of_their_own(bench: WorkBench) -> None:
    """Each item of a `foreach` is claimed and reported by itself."""
    task = bench.hand.start(graph(worker_step(fanout=Fanout(items=[1, 2, 3]))))
    bench.hand.settle({"w": Succeeded(items=[1, 2, 3])})
    for name in bench.hand.names():
        bench.offer(name)
    leases = [leased.row.lease_id for leased in bench.claim_all(limit=3)]
    for number, lease in enumerate(leases):
        assert lease is not None
        bench.complete(lease, number)
    assert bench.hand.document(task)["output"] == {"w": [0, 1, 2]}


def test_many_calls_are_one_commit(bench: WorkBench) -> None:
    """Results and claims of many workers share a transaction."""
    for _ in range(8):
        bench.offer(task_id=bench.hand.start(graph(worker_step())))
    leases = [leased.row.lease_id or "" for leased in bench.claim_all(limit=4)]
    calls = [call_of(lease, "complete", text="1", output=1) for lease in leases]
    result = bench.commit(*calls, WorkClaim(frozenset((QUEUE,)), "next", 10))
    assert [type(part).__name__ for part, _ in result.worked] == ["LeaseCall"] * 4 + ["WorkClaim"]
    assert bench.work_statuses() == ["completed"] * 4 + ["leased"] * 4


def test_work_of_a_locked_task_is_left_out(postgres_database: Database) -> None:
    """Another transaction holds a task: its work is not waited for, and a call on it is carried."""
    hand = Hand(postgres_database)
    bench = WorkBench(hand)
    try:
        tasks = [hand.start(graph(worker_step())) for _ in range(2)]
        for task in tasks:
            bench.offer(task_id=task)
        with postgres_database.connect("writer") as tx, tx.transaction():
            reads.lock_tasks(tx, TASK_COLUMNS, [tasks[0]])
            (leased,) = bench.claim_all(limit=2)
            assert leased.row.task_id == tasks[1]
            claim = WorkClaim(frozenset((QUEUE,)), "tester")
            assert bench.commit(claim).carried_work == [claim]
        lease = bench.claim()
        with postgres_database.connect("writer") as tx, tx.transaction():
            reads.lock_tasks(tx, TASK_COLUMNS, [tasks[0]])
            call = call_of(lease, "heartbeat")
            assert bench.commit(call).carried_work == [call]
        assert bench.call(lease, "heartbeat").lost is None
    finally:
        hand.close()


def test_a_check_of_a_lease_expires_it_when_it_is_over(bench: WorkBench) -> None:
    """The operator's check ends the same leases as the engine's, and before them none."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    before = bench.hand.everything()
    early = check_lease(bench, lease, 10**6)
    assert early.lost is None and early.lease_expires_at is not None
    assert bench.hand.everything() == before
    bench.hand.skip(61)
    assert check_lease(bench, lease, 10**6).lost == "expired"
    assert bench.work_statuses() == ["expired"]
    assert bench.hand.steps(task)["w"]["error"]["code"] == "heartbeat_timeout"
    assert check_lease(bench, lease, 10**6).lost == "expired", "a repetition gets the same answer"
    assert bench.complete(lease).lost == "expired"


@pytest.mark.parametrize("answering", [None, 0, 30, 59])
def test_a_check_of_a_lease_counts_answered_time_alone(
    bench: WorkBench, answering: float | None
) -> None:
    """After a start of the agent the lease lasts one more, also when a person asks for the check."""
    bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.hand.skip(10_000)
    assert check_lease(bench, lease, answering).lost is None
    assert bench.work_statuses() == ["running"]
    assert bench.call(lease, "heartbeat").lost is None


def test_a_check_keeps_leases_of_paused_tasks_and_of_others(bench: WorkBench) -> None:
    """Due steps of a paused task wait for its end; a lease that ended otherwise stays as it is."""
    task = bench.hand.start(graph(worker_step()))
    bench.offer()
    lease = bench.claim(must_start=True)
    bench.hand.operator.pause(task)
    bench.hand.skip(61)
    assert check_lease(bench, lease, 10**6).directive == "pause"
    assert bench.work_statuses() == ["running"]
    bench.hand.operator.resume(task)
    assert bench.complete(lease).lost is None
    assert check_lease(bench, lease, 10**6).lost == "ended"
    assert check_lease(bench, lease[:-4] + "beef", 10**6).lost == "released"
    assert bench.hand.status(task) == "succeeded"


def check_lease(bench: WorkBench, lease: str, answered_seconds: float | None) -> LeaseResult:
    """Check a lease as an operator does; nothing else that is due is visited."""
    now = bench.hand.clock.now()
    answering = None
    if answered_seconds is not None:
        answering = AnsweredTime(now - int(answered_seconds * SECOND), now)
    call = call_of(lease, "expire")
    ((_, result),) = bench.commit(call, answering=answering, most_due=0).worked
    assert isinstance(result, LeaseResult)
    return result
