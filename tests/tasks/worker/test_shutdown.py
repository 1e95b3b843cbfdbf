"""The stop of a worker: an attempt that began nothing loses nothing."""

import asyncio
import sys
import threading
import time
from types import ModuleType

from agent.steps.attempt.context import StepContext
from agent.store.db.database import Database
from tests.support.engine import Engine, eventually, find_violations, graph, other

_steps = ModuleType("shutdown_steps_under_test")
sys.modules["shutdown_steps_under_test"] = _steps


def test_an_intent_that_could_not_be_recorded_costs_no_attempt(
    postgres_database: Database,
) -> None:
    """Another process locks the task beyond the grace period: the effect never began."""
    is_claimed, may_act = threading.Event(), threading.Event()
    effects: list[int] = []

    def act() -> int:
        effects.append(1)
        return 1

    async def pay(ctx: StepContext) -> int:
        is_claimed.set()
        await asyncio.to_thread(may_act.wait, 30)
        paid: int = await ctx.call("pay", {"amount": 1}, act)
        return paid

    _steps.pay = pay  # type: ignore[attr-defined]
    engine = Engine(postgres_database, shutdown_seconds=0.3)
    config = {"call": "shutdown_steps_under_test:pay"}
    task_id = engine.submit(graph(other("pay", "python", config=config)))
    assert is_claimed.wait(30)
    holder = postgres_database.connect("writer")
    holder._begin()
    holder.query("SELECT id FROM tasks WHERE id = :id FOR NO KEY UPDATE", id=task_id)
    may_act.set()
    eventually(lambda: not engine.worker.outbox.is_empty)
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    time.sleep(1.0)
    holder._rollback()
    holder.close()
    stopping.join(30)
    step = engine.steps(task_id)["pay"]
    assert (step["status"], step["attempt"], effects) == ("pending", 1, [])
    assert engine.rows("SELECT count(*) FROM idempotency_outcomes WHERE status = 'unknown'") == [
        (0,)
    ]
    engine.close()
    assert find_violations(postgres_database) == []
