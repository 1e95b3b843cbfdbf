"""Traces of tasks, as a receiver of OTLP gets them: one for each task, also over a crash."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.config.operation import TelemetrySettings
from agent.daemon.task_spans import TaskSpans
from agent.models.registry import ModelRegistry
from agent.store.db.database import Database
from agent.telemetry import trace_context
from agent.telemetry.otlp import OtlpSink
from agent.workflows.graph import RetryPolicy, Step
from tests.support import http_server
from tests.support.engine import Engine, graph, other, step
from tests.support.http_server import Server
from tests.support.otlp_receiver import Receiver, Span, receiving

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CLIENT = 3
AT_ONCE = RetryPolicy(max_attempts=3, delay_seconds=0, jitter=False)

Traced = Callable[[], Engine]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a running receiver."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def traced(sqlite_database: Database, receiver: Receiver) -> Iterator[Traced]:
    """Return a function that starts a worker whose spans the receiver gets when it stops."""
    engines: list[Engine] = []

    def start() -> Engine:
        engine = Engine(sqlite_database, ("127.0.0.1",), models=ModelRegistry(default="echo"))
        sink = OtlpSink(TelemetrySettings(endpoint=receiver.url, service_name="tested"))
        engine.worker.services.spans = sink
        TaskSpans(sqlite_database, sink).subscribe(engine.tail)
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        finish(engine)


def finish(engine: Engine) -> None:
    """Stop a worker, and send its spans."""
    engine.stop()
    if engine.worker.services.spans is not None:
        engine.worker.services.spans.close()
        engine.worker.services.spans = None


@pytest.fixture
def remote() -> Iterator[Server]:
    """Return a server that answers every path with 200."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Server()
    server.routes = {"/pay": http_server.answer(201, {}), "/look": http_server.answer(200, {})}

    async def listen() -> Any:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
        return listening

    listening = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    yield server
    loop.call_soon_threadsafe(listening.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def function(name: str, called: str, after: tuple[str, ...] = ()) -> Step:
    """Return a step that calls a function of these tests."""
    config = {"call": f"tests.support.trace_functions:{called}"}
    return Step(name=name, kind="python", config=config, depends_on=list(after), retry=AT_ONCE)


def only(spans: list[Span]) -> Span:
    """Return the only span."""
    (span,) = spans
    return span


def test_a_task_is_one_trace(traced: Traced, receiver: Receiver, remote: Server) -> None:
    """The task, its attempts and their calls, each below the one that it belongs to."""
    engine = traced()
    pay = {"post": remote.url("/pay?key=hidden"), "json": {"a": 1}}
    look = {"get": remote.url("/look")}
    task_id = engine.run(
        graph(
            function("flaky", "fail_once"),
            other("ask", "llm", after=["flaky"], config={"prompt": "hello"}),
            other("look", "http", after=["ask"], config=look),
            other("pay", "http", after=["look"], config=pay),
            name="billing",
        ),
        "succeeded",
    )["id"]
    finish(engine)
    task = only(receiver.named("task billing"))
    assert {span.trace_id for span in receiver.spans} == {task.trace_id}
    assert task.trace_id == f"{trace_context.trace_of(task_id, None).root.trace_id:032x}"
    assert task.parent_id == ""
    assert task.resource["service.name"] == "tested"
    assert (task.attributes["agent.task.id"], task.attributes["agent.task.status"]) == (
        task_id,
        "succeeded",
    )
    assert not task.is_error

    failed, done = sorted(
        receiver.named("step flaky"), key=lambda span: span.attributes["agent.attempt"]
    )
    assert (failed.is_error, failed.attributes["agent.attempt.outcome"]) == (True, "retry")
    assert "not yet" in failed.message
    assert (done.is_error, done.attributes["agent.attempt.outcome"]) == (False, "succeeded")
    for name in ("step flaky", "step ask", "step look", "step pay"):
        assert {span.parent_id for span in receiver.named(name)} == {task.span_id}
        assert all(
            task.started_ns <= span.started_ns <= task.ended_ns for span in receiver.named(name)
        )

    model = only(receiver.named("chat echo"))
    assert model.parent_id == only(receiver.named("step ask")).span_id
    assert model.kind == CLIENT
    asked = {key: value for key, value in model.attributes.items() if key.startswith("gen_ai.")}
    assert asked["gen_ai.operation.name"] == "chat"
    assert asked["gen_ai.provider.name"] == "echo"
    assert asked["gen_ai.request.model"] == "echo"
    assert asked["gen_ai.usage.input_tokens"] > 0
    assert asked["gen_ai.usage.output_tokens"] > 0
    assert asked["gen_ai.response.finish_reasons"] == ["end"]

    for method, path, status in (("GET", "/look", 200), ("POST", "/pay", 201)):
        request = only(receiver.named(method))
        assert request.kind == CLIENT
        assert request.attributes["url.full"] == remote.url(path)
        assert request.attributes["http.response.status_code"] == status
        (received,) = [each for each in remote.received if each.target.startswith(path)]
        assert received.headers["traceparent"] == (f"00-{request.trace_id}-{request.span_id}-01")


def test_spans_after_a_crash_join_the_same_trace(traced: Traced, receiver: Receiver) -> None:
    """Another process computes the same ids: nothing of the trace is stored."""
    first = traced()
    task_id = first.submit(
        graph(
            function("before", "log_keys"),
            other("go", "wait", after=["before"], config={"signal": "go"}),
            function("later", "log_keys", after=("go",)),
        )
    )
    first.wait_step(task_id, "go", "waiting")
    finish(first)
    second = traced()
    second.operator.signal(task_id, "go")
    document = second.wait(task_id, "succeeded")
    finish(second)
    task = only(receiver.named("task tested"))
    before, later = only(receiver.named("step before")), only(receiver.named("step later"))
    assert before.trace_id == later.trace_id == task.trace_id
    assert before.parent_id == later.parent_id == task.span_id
    outputs = {found["name"]: found["output"] for found in document["steps"]}
    for span in (before, later):
        name = span.attributes["agent.step.name"]
        assert outputs[name] == {"trace_id": span.trace_id, "span_id": span.span_id}


def test_a_task_joins_the_trace_of_its_caller(traced: Traced, receiver: Receiver) -> None:
    """What started it carries the header, and the task's span is below the caller's."""
    engine = traced()
    trigger = {"kind": "api", "traceparent": CALLER}
    engine.run(graph(step("one")), "succeeded", trigger=trigger)
    finish(engine)
    task = only(receiver.named("task tested"))
    assert {span.trace_id for span in receiver.spans} == {CALLER.split("-")[1]}
    assert task.parent_id == CALLER.split("-")[2]


def test_a_failed_and_a_canceled_task_are_reported(traced: Traced, receiver: Receiver) -> None:
    """Also where a command of another process ends the task."""
    engine = traced()
    engine.run(graph(step("one", "fail", retry=RetryPolicy(max_attempts=1))), "failed")
    canceled = engine.submit(graph(other("go", "wait", config={"signal": "go"}), name="other"))
    engine.wait_step(canceled, "go", "waiting")
    engine.operator.cancel(canceled)
    finish(engine)
    failed = only(receiver.named("task tested"))
    assert failed.is_error
    assert "it does not work" in failed.message
    assert failed.attributes["error.type"]
    assert only(receiver.named("task other")).attributes["agent.task.status"] == "canceled"


@pytest.mark.parametrize("is_gone", [False, True], ids=["refuses", "is gone"])
def test_a_broken_receiver_hurts_nothing(
    sqlite_database: Database, receiver: Receiver, is_gone: bool
) -> None:
    """Tasks end as without traces, and the worker stops in bounded time."""
    receiver.status = 400
    endpoint = "http://127.0.0.1:9" if is_gone else receiver.url
    engine = Engine(sqlite_database)
    sink = OtlpSink(TelemetrySettings(endpoint=endpoint))
    engine.worker.services.spans = sink
    try:
        for _ in range(3):
            engine.run(graph(step("one")), "succeeded")
        engine.stop()
        began = time.monotonic()
        sink.close()
        assert time.monotonic() - began < 20
    finally:
        engine.close()
    assert receiver.spans == []


def test_a_task_outside_the_sample_has_no_spans(
    sqlite_database: Database, receiver: Receiver
) -> None:
    """At ratio zero nothing is sent."""
    engine = Engine(sqlite_database)
    sink = OtlpSink(TelemetrySettings(endpoint=receiver.url, sample_ratio=0.0))
    engine.worker.services.spans = sink
    try:
        engine.run(graph(step("one")), "succeeded")
    finally:
        engine.stop()
        sink.close()
        engine.close()
    assert receiver.spans == []


def test_nothing_is_imported_without_a_receiver() -> None:
    """Neither by the daemon nor by a worker in a command."""
    code = (
        "import sys, agent.daemon.daemon, agent.daemon.embedded_worker, agent.bootstrap,"
        " agent.server.application, agent.steps.kinds.http; from agent.config.settings import Settings;"
        " assert agent.bootstrap.open_telemetry(Settings()) is None;"
        " print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
