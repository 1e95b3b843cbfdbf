"""A step that blocks the event loop is logged with its name and the duration."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.config.execution import EngineSettings
from agent.store.db.database import Database
from agent.tasks.commit.metrics import Blocks
from agent.tasks.rules.creation import Submission
from agent.tasks.worker import watchdog
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import Fanout, Graph, Step

PATIENCE_SECONDS = 60


def run_steps(
    database: Database, function: str, seconds: float, blocks: Blocks | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Run a step beside a watchdog; return the log lines about the loop."""
    config = {"call": f"tests.support.blocking_steps:{function}", "with": {"seconds": seconds}}
    steps = [Step(name="s0", kind="python", config=config, **options)]

    async def main() -> None:
        worker = Worker(database, EngineSettings(poll_seconds=0.05))
        running = asyncio.create_task(worker.run())
        with watchdog.watching(blocks or Blocks()), database.connect("reader") as reader:
            await worker.submit(Submission(graph=Graph(name="blocking", steps=steps)))
            async with asyncio.timeout(PATIENCE_SECONDS):
                open_tasks = "SELECT 1 FROM tasks WHERE ended_at IS NULL"
                while reader.query(open_tasks):  # noqa: ASYNC110 - the worker sets no event here
                    await asyncio.sleep(0.05)
            # The watchdog's thread sees the end a little later.
            await asyncio.sleep(2 * watchdog.PAUSE_SECONDS)
            worker.stop()
            await running

    with capture_logs() as logs:
        asyncio.run(main())
    return [dict(line) for line in logs if line["event"].startswith("event_loop.")]


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ("sleep_without_await", "in sleep_without_await"),
        ("sleep_in_a_task", "in inner"),
        ("sleep_in_a_callback", ""),
    ],
)
def test_a_blocking_step_is_named_in_the_log(
    function: str, where: str, sqlite_database: Database
) -> None:
    """The log has its task, its name, the function on the stack, and afterwards the duration."""
    blocked, unblocked = run_steps(sqlite_database, function, 2.0)
    assert (blocked["event"], blocked["log_level"]) == ("event_loop.blocked", "warning")
    assert (blocked["step"], blocked["attempt"]) == ("s0", 1)
    assert blocked["task"]
    assert where in blocked["where"]
    assert unblocked["event"] == "event_loop.unblocked"
    assert unblocked["step"] == "s0"
    assert unblocked["seconds"] >= 1.5


def test_a_blocking_step_is_logged_once_a_minute(sqlite_database: Database) -> None:
    """The second item of the same step is counted, and not logged."""
    blocks = Blocks()
    items = Fanout(count=2, concurrency=1)
    logged = run_steps(sqlite_database, "sleep_without_await", 1.8, blocks=blocks, fanout=items)
    assert [line["event"] for line in logged] == ["event_loop.blocked", "event_loop.unblocked"]
    assert blocks.count == 2
    assert blocks.seconds >= 2.5


def test_a_call_that_holds_the_interpreter_is_counted(sqlite_database: Database) -> None:
    """The watchdog cannot run meanwhile, and detects it afterwards."""
    blocks = Blocks()
    logged = run_steps(sqlite_database, "hold_the_interpreter", 3.0, blocks=blocks)
    assert {line["event"] for line in logged} & {"event_loop.blocked", "event_loop.was_blocked"}
    assert blocks.count >= 1


def test_awaiting_does_not_count_as_blocking(sqlite_database: Database) -> None:
    """A step that awaits for longer is not logged."""
    assert run_steps(sqlite_database, "wait", 2.0) == []
