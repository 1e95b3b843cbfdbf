"""An attempt that has ended is freed at once: no cycle keeps it, its values and its asyncio task."""

import gc

from agent.steps.attempt.context import StepContext
from agent.tasks.worker.attempts import Attempt
from tests.support.engine import Engine, eventually, graph, step

KINDS = (Attempt, StepContext)


def test_an_attempt_that_has_ended_leaves_no_cycle(engine: Engine) -> None:
    """With the collector off, nothing of it is left, neither of a coroutine's nor of a thread's."""
    work = graph(step("thread", "noop"), step("loop", "echo", after=["thread"], given={"value": 1}))
    engine.run(work)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            engine.run(work)
        eventually(lambda: not [each for each in gc.get_objects() if isinstance(each, KINDS)])
    finally:
        gc.enable()
