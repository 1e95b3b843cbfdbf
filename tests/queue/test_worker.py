"""The worker: lost answers, outages, cancelling, pausing, and its own end."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.clock import Clock
from agent.queue import AsyncWork, QueueError, Work, Worker, handler
from tests.support.cli import ROOT
from tests.support.free_port import free_port
from tests.support.lossy_proxy import LossyProxy
from tests.support.queue_bench import QueueBench
from tests.support.server import PATIENCE_SECONDS, Running, wait_for
from tests.support.untrusted_server import untrusted_server


@pytest.fixture
def proxy(running: Running) -> Iterator[LossyProxy]:
    """Return a proxy before the agent."""
    with LossyProxy(running.server.url) as proxy:
        yield proxy


@pytest.mark.parametrize("verb", ["claim", "running", "checkpoint", "snapshot", "complete"])
def test_a_lost_answer_is_asked_for_again(bench: QueueBench, proxy: LossyProxy, verb: str) -> None:
    """The agent acted and its answer was lost: the same lease is used, and the handler runs once."""
    runs = []

    @handler(f"lossy-{verb}")
    def answer(work: Work) -> str:
        runs.append(work.attempt)
        work.checkpoint(1)
        work.snapshot({"seen": 1})
        return "done"

    task_id = bench.start(f"lossy-{verb}")
    proxy.lose(verb, 2)
    bench.work(answer, server=proxy.url)
    assert bench.ended(task_id)["output"] == "done"
    assert runs == [1]
    assert proxy.lost == [verb, verb]
    found = bench.client.get(f"/api/v1/tasks/{task_id}/snapshots").json()["snapshots"]
    assert [each["value"] for each in found] == [{"seen": 1}]


def test_the_result_carries_the_next_claim(bench: QueueBench, proxy: LossyProxy) -> None:
    """A busy worker sends one request a step; a lost answer loses neither the result nor the next lease."""
    runs: list[Any] = []

    @handler("chained")
    def answer(work: Work) -> Any:
        runs.append((work.input["value"], work.attempt))
        return work.input["value"]

    task_ids = [bench.start("chained", number) for number in range(3)]
    proxy.lose("complete", 2)
    bench.work(answer, limit=3, server=proxy.url)
    assert [bench.ended(task_id)["output"] for task_id in task_ids] == [0, 1, 2]
    assert sorted(runs) == [(0, 1), (1, 1), (2, 1)]
    assert proxy.count("claim") == 1
    assert proxy.count("running") == 1


def test_a_refused_result_does_not_lose_the_next_work(bench: QueueBench) -> None:
    """The first step is cancelled and its result refused; the claim beside it still counts."""

    @handler("refused")
    def answer(work: Work) -> str:
        if work.task_id == first:
            bench.client.post(f"/api/v1/tasks/{first}/cancel")
        return "done"

    first, second = bench.start("refused"), bench.start("refused")
    bench.work(answer, limit=2)
    assert bench.ended(second)["output"] == "done"
    assert bench.step(second)["attempt"] == 1
    bench.ended(first, "canceled")


def test_next_work_whose_answer_took_a_lease_is_asked_for_before_it_begins(
    bench: QueueBench, proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the next work may have expired on the way: the worker sends `running` first."""

    class Jumping(Clock):
        def monotonic(self) -> float:
            return super().monotonic() + 1000.0 * len(proxy.lost)

    monkeypatch.setattr("agent.queue.worker.Clock", Jumping)

    @handler("overtaken")
    def answer(work: Work) -> Any:
        return work.input["value"]

    task_ids = [bench.start("overtaken", number) for number in range(3)]
    proxy.lose("complete")
    bench.work(answer, limit=3, server=proxy.url)
    assert [bench.ended(task_id)["output"] for task_id in task_ids] == [0, 1, 2]
    # Of the first work, which a claim got, and of the second one.
    assert proxy.count("running") == 2


def test_a_cancelled_step_ends_its_handler(bench: QueueBench) -> None:
    """A function that waits notices; a coroutine is cancelled and may clean up."""
    began, told, cleaned = threading.Event(), threading.Event(), threading.Event()

    @handler("cancelled-function")
    def wait_long(work: Work) -> None:
        began.set()
        assert work.wait(PATIENCE_SECONDS)
        assert work.cancelled
        told.set()

    @handler("cancelled-coroutine")
    async def sleep_long(work: AsyncWork) -> None:
        began.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            cleaned.set()

    with bench.working(wait_long, sleep_long, concurrency=2):
        for queue, seen in (("cancelled-function", told), ("cancelled-coroutine", cleaned)):
            task_id = bench.start(queue, worker={"lease": "3s"})
            assert began.wait(PATIENCE_SECONDS)
            bench.client.post(f"/api/v1/tasks/{task_id}/cancel")
            assert seen.wait(PATIENCE_SECONDS)
            began.clear()
            bench.ended(task_id, "canceled")


def test_a_paused_step_is_given_back_at_its_next_checkpoint(bench: QueueBench) -> None:
    """Pausing the task ends the handler at a checkpoint; after the resumption the next claim has it."""
    began, is_paused = threading.Event(), threading.Event()

    @handler("paused")
    def answer(work: Work) -> Any:
        if work.checkpoint_value is not None:
            return work.checkpoint_value
        began.set()
        wait_for(lambda: work.paused)
        is_paused.set()
        work.checkpoint("half")
        raise AssertionError("a paused handler does not go on")

    with bench.working(answer):
        task_id = bench.start("paused", worker={"lease": "3s"})
        assert began.wait(PATIENCE_SECONDS)
        bench.client.post(f"/api/v1/tasks/{task_id}/pause", json={})
        assert is_paused.wait(PATIENCE_SECONDS)
        wait_for(lambda: bench.queue("paused")["queued"])
        bench.client.post(f"/api/v1/tasks/{task_id}/resume")
        assert bench.ended(task_id)["output"] == "half"


def test_a_lease_outlives_a_handler_that_blocks(bench: QueueBench) -> None:
    """Heartbeats come from another thread: a lease of three seconds is kept for four."""
    runs = []

    @handler("busy")
    def answer(work: Work) -> int:
        runs.append(work.attempt)
        time.sleep(4)
        return len(runs)

    task_id = bench.start("busy", worker={"lease": "3s"})
    bench.work(answer)
    assert bench.ended(task_id)["output"] == 1


def test_the_result_waits_for_an_agent_that_is_down(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent ends while a handler runs: the worker goes on, and delivers to the next agent."""
    from agent.store.db.database import Database

    began, may_end = threading.Event(), threading.Event()

    @handler("patient")
    def answer(work: Work) -> str:
        began.set()
        assert may_end.wait(PATIENCE_SECONDS)
        return f"attempt {work.attempt}"

    port = free_port()
    with Running(Database(sqlite_url), tmp_path, port=port) as first, first.client() as client:
        bench = QueueBench(first, client)
        task_id = bench.start("patient")
        worker = bench.worker(answer)
        thread = threading.Thread(target=worker.run, kwargs={"limit": 1}, daemon=True)
        thread.start()
        assert began.wait(PATIENCE_SECONDS)
    with caplog.at_level(logging.WARNING, "agent.queue"):
        may_end.set()
        wait_for(lambda: "waits for the agent" in caplog.text)
    with Running(Database(sqlite_url), tmp_path, port=port) as second, second.client() as client:
        assert QueueBench(second, client).ended(task_id)["output"] == "attempt 1"
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_a_worker_may_start_before_its_agent(
    sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It tries again until the agent answers, and says both."""
    from agent.store.db.database import Database

    port = free_port()
    worker = Worker(
        handler("early")(lambda work: work.attempt), server=f"127.0.0.1:{port}", token="unknown"
    )
    token_file = tmp_path / "data" / "token"
    token_file.parent.mkdir(mode=0o700)
    token_file.write_text("unknown\n")
    token_file.chmod(0o600)
    thread = threading.Thread(target=worker.run, kwargs={"limit": 1}, daemon=True)
    thread.start()
    wait_for(lambda: "no work can be claimed" in caplog.text)
    assert "answers again" not in caplog.text
    with Running(Database(sqlite_url), tmp_path, port=port) as running, running.client() as client:
        bench = QueueBench(running, client)
        assert bench.ended(bench.start("early"))["output"] == 1
        thread.join(PATIENCE_SECONDS)
    assert "the agent answers again" in caplog.text


def test_an_undelivered_result_is_an_error(sqlite_url: str, tmp_path: Path) -> None:
    """A worker that is stopped while the agent is down says which results it could not deliver."""
    from agent.store.db.database import Database

    began, may_end = threading.Event(), threading.Event()

    @handler("unlucky")
    def answer(_: Work) -> None:
        began.set()
        assert may_end.wait(PATIENCE_SECONDS)

    problems: list[BaseException] = []
    with Running(Database(sqlite_url), tmp_path) as running, running.client() as client:
        bench = QueueBench(running, client)
        task_id = bench.start("unlucky")
        worker = bench.worker(answer, grace_seconds=0.5)

        def run() -> None:
            try:
                worker.run()
            except QueueError as problem:
                problems.append(problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert began.wait(PATIENCE_SECONDS)
    worker.stop()
    may_end.set()
    thread.join(PATIENCE_SECONDS)
    (problem,) = problems
    assert task_id in str(problem)
    assert "not delivered" in str(problem)


def test_a_bad_token_ends_the_worker(bench: QueueBench) -> None:
    """The agent does not know the token, or it has no such queue: an error instead of endless tries."""
    answer = handler("mine")(lambda _: None)
    with pytest.raises(QueueError, match="does not accept this token"):
        bench.work(answer, token="agent_wrong")
    token = bench.running.token_with("work:other")
    with pytest.raises(QueueError, match="mine"):
        bench.work(answer, token=token)


def test_a_worker_needs_an_address_and_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, with the way to give it."""
    for name in ("AGENT_SERVER", "AGENT_TOKEN", "AGENT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    answer = handler("any")(lambda _: None)
    with pytest.raises(QueueError, match="AGENT_SERVER"):
        Worker(answer)
    with pytest.raises(QueueError, match="AGENT_TOKEN"):
        Worker(answer, server="127.0.0.1:8420")
    with pytest.raises(QueueError, match="write it as http"):
        Worker(answer, server="ftp://127.0.0.1:8420", token="x")


def test_serve_runs_beside_other_coroutines(bench: QueueBench) -> None:
    """Handlers run in the caller's loop; cancelling `serve` ends the worker."""
    loops = []

    @handler("served")
    async def answer(_: AsyncWork) -> str:
        loops.append(asyncio.get_running_loop())
        return "here"

    task_id = bench.start("served")

    async def main() -> None:
        serving = asyncio.ensure_future(bench.worker(answer).serve())
        await asyncio.to_thread(bench.ended, task_id)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert loops == [asyncio.get_running_loop()]

    asyncio.run(main())


PROGRAM = """
import asyncio, sys, time
from agent.queue import Work, AsyncWork, Worker, handler

@handler("ending")
async def answer(work: AsyncWork):
    print("began", work.attempt, flush=True)
    await asyncio.sleep(float(sys.argv[1]))
    return "slept"

Worker(grace_seconds=float(sys.argv[2])).run()
print("ended", flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("sleep", "grace"), [("0.5", "30"), ("60", "0.3")], ids=["finish", "release"]
)
def test_sigterm_lets_a_handler_finish_or_gives_its_step_back(
    bench: QueueBench, sleep: str, grace: str
) -> None:
    """Within the grace time the result is delivered; after it the step is in its queue again."""
    task_id = bench.start("ending")
    with _program(bench, PROGRAM, sleep, grace) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began 1\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(PATIENCE_SECONDS) == 0
    if sleep == "0.5":
        assert bench.ended(task_id)["output"] == "slept"
    else:
        bench.work(handler("ending")(lambda work: "again"))
        assert bench.ended(task_id)["output"] == "again"


@pytest.mark.process
def test_an_idle_worker_ends_at_once(bench: QueueBench) -> None:
    """SIGTERM interrupts the long poll; no work stays claimed."""
    task_id = bench.start("ending")
    with _program(bench, PROGRAM, "0", "30") as process:
        bench.ended(task_id)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert time.monotonic() - start < 10
    assert bench.queue("ending").get("leased", 0) == 0


def test_the_client_loads_no_library() -> None:
    """A program that only works on steps needs neither our configuration nor a database nor an HTTP library."""
    script = "import sys, json, agent.queue; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {
        "httpx",
        "pydantic",
        "sqlalchemy",
        "structlog",
        "typer",
        "fastapi",
        "jinja2",
    }
    ours = {name for name in json.loads(done.stdout) if name.startswith("agent.")}
    assert all(name.startswith(("agent.queue", "agent.core")) for name in ours)


def _program(bench: QueueBench, text: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        cwd=ROOT,
        env=os.environ
        | {"AGENT_SERVER": bench.running.server.url, "AGENT_TOKEN": bench.running.token},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_an_agent_with_an_untrusted_certificate_ends_the_worker() -> None:
    """Asking again and again would find the same certificate."""

    @handler("untrusted")
    def never(work: Work) -> None:
        raise AssertionError(work)

    with untrusted_server() as server:
        worker = Worker(never, server=server.url, token="a-token")
        with pytest.raises(QueueError, match="certificate"):
            worker.run()
    assert server.connections <= 2
