"""What becomes of a handler's end: outputs, failures, questions, checkpoints, logs."""

import asyncio
import threading
import time
from typing import Any

import pytest

from agent.queue import AsyncWork, Final, Result, Retry, Work, handler
from tests.support.queue_bench import QueueBench
from tests.support.server import PATIENCE_SECONDS, wait_for


def test_the_return_value_is_the_output(bench: QueueBench) -> None:
    """A handler gets the rendered `with` and what identifies the attempt; what it returns is the step's output."""
    seen: list[Work] = []

    @handler("plain")
    def answer(work: Work) -> Any:
        seen.append(work)
        return {"got": work.input["value"]}

    task_id = bench.start("plain", {"a": [1, None]})
    bench.work(answer)
    assert bench.ended(task_id)["output"] == {"got": {"a": [1, None]}}
    (work,) = seen
    assert (work.task_id, work.step, work.queue, work.attempt) == (task_id, "job", "plain", 1)
    assert work.key is None, "only an effect has a key"
    assert work.checkpoint_value is None
    assert work.answer is None


def test_coroutine_functions_share_an_event_loop(bench: QueueBench) -> None:
    """Three of them wait for each other: they run at the same time, in one loop."""
    barrier = asyncio.Barrier(3)
    loops: set[int] = set()

    @handler("together")
    async def answer(work: AsyncWork) -> Any:
        loops.add(id(asyncio.get_running_loop()))
        await barrier.wait()
        return work.input["value"]

    task_ids = [bench.start("together", number) for number in range(3)]
    bench.work(answer, limit=3, concurrency=3)
    assert [bench.ended(task_id)["output"] for task_id in task_ids] == [0, 1, 2]
    assert len(loops) == 1


def test_functions_run_at_the_same_time_up_to_the_concurrency(bench: QueueBench) -> None:
    """Two slots are two threads, and never three."""
    barrier, running, most = threading.Barrier(2), 0, 0
    lock = threading.Lock()

    @handler("pairs")
    def answer(_: Work) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(30)
        with lock:
            running -= 1

    task_ids = [bench.start("pairs") for _ in range(4)]
    bench.work(answer, limit=4, concurrency=2)
    for task_id in task_ids:
        bench.ended(task_id)
    assert most == 2


def test_an_exception_is_retried_and_shows_the_handlers_own_frames(bench: QueueBench) -> None:
    """The error names the exception; the log has the traceback without frames of the client."""

    @handler("clumsy")
    def answer(work: Work) -> str:
        if work.attempt == 1:
            raise ValueError("it slipped")
        return "caught"

    task_id = bench.start("clumsy")
    bench.work(answer, limit=2)
    assert bench.ended(task_id)["output"] == "caught"
    log = bench.log(task_id)
    assert "ValueError: it slipped" in log
    assert "in answer" in log
    assert "agent/queue" not in log


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_what_a_handler_raises_ends_its_own_step_only(
    bench: QueueBench, end: BaseException, is_async: bool
) -> None:
    """Exceptions that are meant to end a process or a task are failures of the attempt, and the worker goes on."""
    queue = f"rude-{type(end).__name__.lower()}-{is_async}".lower()

    def act(work: Work | AsyncWork) -> str:
        if work.attempt == 1:
            raise end
        return "fine"

    async def act_async(work: AsyncWork) -> str:
        return act(work)

    task_id = bench.start(queue)
    bench.work(handler(queue)(act_async if is_async else act), limit=2)
    assert bench.ended(task_id)["output"] == "fine"


def test_a_final_failure_is_not_retried(bench: QueueBench) -> None:
    """`Final` fails the step with its message and its code, whatever `retry:` says."""

    @handler("hopeless")
    def answer(_: Work) -> None:
        raise Final("no such customer", code="no_customer")

    task_id = bench.start("hopeless")
    bench.work(answer)
    error = bench.ended(task_id, "failed")["error"]
    assert "no such customer" in error["message"]
    assert bench.step(task_id)["attempt"] == 1


def test_a_retry_says_when(bench: QueueBench) -> None:
    """`after_seconds` is the delay of the next attempt instead of the step's own."""

    @handler("later")
    def answer(_: Work) -> None:
        raise Retry("not yet", after_seconds=3600)

    task_id = bench.start("later")
    bench.work(answer)
    wait_for(lambda: bench.step(task_id)["status"] == "pending")
    task = bench.client.get(f"/api/v1/tasks/{task_id}").json()
    assert task["status"] == "running"
    bench.client.post(f"/api/v1/tasks/{task_id}/cancel")


@pytest.mark.parametrize("output", [{"words": "many"}, object(), float("nan")])
def test_an_output_that_cannot_be_recorded_fails_the_step(bench: QueueBench, output: Any) -> None:
    """It does not match the schema or is no JSON: another attempt would return the same."""
    queue = f"odd-{type(output).__name__}"
    schema = {"type": "object", "properties": {"words": {"type": "integer"}}}
    task_id = bench.start(queue, output=schema)
    bench.work(handler(queue)(lambda _: output))
    assert "refused" in bench.ended(task_id, "failed")["error"]["message"]


def test_a_checkpoint_is_for_the_next_attempt(bench: QueueBench) -> None:
    """What an attempt has recorded before it failed is there when the next begins."""

    @handler("halves")
    def answer(work: Work) -> Any:
        if work.checkpoint_value is None:
            work.checkpoint({"half": 1})
            raise Retry("only half")
        return work.checkpoint_value

    task_id = bench.start("halves")
    bench.work(answer, limit=2)
    assert bench.ended(task_id)["output"] == {"half": 1}


def test_log_lines_and_artifacts_arrive(bench: QueueBench) -> None:
    """Lines come in order, with their streams; an artifact can be read by its hash."""

    @handler("chatty")
    def answer(work: Work) -> Any:
        work.log("one")
        work.log("two\n", "stderr")
        work.log("x" * 50_000)
        return work.artifact("report", {"rows": [1, 2]})

    task_id = bench.start("chatty")
    bench.work(answer)
    reference = bench.ended(task_id)["output"]
    assert reference["name"] == "report"
    log = bench.log(task_id)
    assert log.startswith("one\ntwo\n")
    assert log.count("x") == 50_000
    stored = bench.client.get(f"/api/v1/artifacts/{reference['hash']}")
    assert stored.json() == {"rows": [1, 2]}


def test_a_handler_reads_the_context_of_its_task(bench: QueueBench) -> None:
    """Also what was appended after the claim: a heartbeat says so, and reading it is enough."""
    seen: list[Any] = []

    @handler("notes")
    def answer(work: Work) -> Any:
        seen.append((work.latest_snapshot(), work.snapshots()))
        address = f"/api/v1/tasks/{work.task_id}/snapshots"
        first, second = (
            bench.client.post(address, json={"value": n, "label": label}).json()["id"]
            for n, label in ((1, "a"), (2, None))
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while work.newer_snapshot != second:
            assert time.monotonic() < deadline
            work.wait(0.05)
        labelled, newest = work.latest_snapshot("a"), work.latest_snapshot()
        seen.append([page["value"] for page in (labelled, newest) if page])
        seen.append([each["value"] for each in work.snapshots(after=first)])
        return work.newer_snapshot

    task_id = bench.start("notes", worker={"lease": "1s"})
    bench.work(answer)
    assert bench.ended(task_id)["output"] is None
    assert seen == [(None, []), [1, 2], [2]]


def test_snapshots_are_appended_also_with_the_result(bench: QueueBench) -> None:
    """One by a call of its own, one in the transaction that completes the step."""

    @handler("notes")
    def answer(work: Work) -> Any:
        work.snapshot({"seen": 1}, "progress")
        return Result("done", snapshot={"seen": 2}, label="end")

    task_id = bench.start("notes")
    bench.work(answer)
    assert bench.ended(task_id)["output"] == "done"
    found = bench.client.get(f"/api/v1/tasks/{task_id}/snapshots").json()["snapshots"]
    assert [(each["label"], each["value"]) for each in found] == [
        ("progress", {"seen": 1}),
        ("end", {"seen": 2}),
    ]


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_a_question_parks_the_step_until_a_person_answers(
    bench: QueueBench, is_async: bool
) -> None:
    """The first call of `ask` does not return; after the answer the handler runs again and gets it."""
    queue = f"asking-{is_async}".lower()
    calls: list[Any] = []

    def ask(work: Work) -> str:
        calls.append(work.checkpoint_value)
        return f"it is {work.ask('Which colour?', choices=['red', 'blue'], checkpoint=7)}"

    async def ask_async(work: AsyncWork) -> str:
        calls.append(work.checkpoint_value)
        return f"it is {await work.ask('Which colour?', choices=['red', 'blue'], checkpoint=7)}"

    answer = handler(queue)(ask_async if is_async else ask)
    task_id = bench.start(queue)
    bench.work(answer)
    asked = bench.question(task_id)
    assert "Which colour?" in asked["message"]
    bench.client.post(f"/api/v1/approvals/{asked['id']}/answer", json={"value": "blue"})
    bench.work(answer)
    assert bench.ended(task_id)["output"] == "it is blue"
    assert calls == [None, 7]


def test_a_blocked_step_goes_on_when_it_is_resumed(bench: QueueBench) -> None:
    """`block` parks; resuming it gives a value to the next claim."""

    @handler("stuck")
    def answer(work: Work) -> Any:
        return work.block("the printer is out of paper")

    task_id = bench.start("stuck")
    bench.work(answer)
    asked = bench.question(task_id)
    assert "out of paper" in asked["message"]
    assert bench.queue("stuck")["asked"] == 1
    bench.client.post(f"/api/v1/approvals/{asked['id']}/answer", json={"value": "refilled"})
    bench.work(answer)
    assert bench.ended(task_id)["output"] == "refilled"


def test_a_worker_needs_handlers_that_fit_together() -> None:
    """Functions without a queue, and two for one queue, are refused with their names."""
    from agent.queue import Worker

    def plain(_: Work) -> None: ...

    @handler("same")
    def first(_: Work) -> None: ...

    @handler("same")
    def second(_: Work) -> None: ...

    with pytest.raises(TypeError, match="plain is not a handler"):
        Worker(plain, server="http://127.0.0.1:1", token="x")
    with pytest.raises(TypeError, match=r"two handlers for the queue 'same': .*first and .*second"):
        Worker(first, second, server="http://127.0.0.1:1", token="x")
    with pytest.raises(TypeError, match="name the queue"):
        handler()
    with pytest.raises(ValueError, match="'two words' is no queue's name: use lower-case letters"):
        handler("two words")
