"""How long a task waits on after a person's answer: from the answer's arrival to the task's end.

The answer is given as every surface gives it, through connections of its own beside the worker's,
so the worker has to notice it like any other process's work.
"""

import asyncio
import time
from typing import Any, Final

from agent.approvals import answering
from agent.approvals.permission import terminal_user
from agent.tasks.rules.creation import Submission
from bench import definitions, process, usage
from bench.session import Session, session

_WARM_UP: Final = 3


def main(url: str, tasks: int) -> dict[str, Any]:
    """Answer the questions of a number of tasks, one after the other."""
    return asyncio.run(_measure(url, tasks))


async def _measure(url: str, tasks: int) -> dict[str, Any]:
    async with session(url) as opened:
        latencies = [await _ask_and_answer(opened) for _ in range(_WARM_UP + tasks)]
    return {"p50_ms": usage.p50_ms(latencies[_WARM_UP:]), "rss_mb": usage.rss_mb()}


async def _ask_and_answer(opened: Session) -> float:
    submission = Submission(definitions.question())
    asked = opened.expect(submission.task_id, "approval.requested")
    running = asyncio.create_task(opened.run_task(submission))
    event = await asked
    approval_id = opened.data(event)["approval"]
    # Nothing is under way any more: what is measured is a worker that sleeps.
    await asyncio.sleep(0.02)
    start = time.perf_counter()
    bench = terminal_user("bench")
    await asyncio.to_thread(
        answering.answer, opened.database, approval_id, "approve", principal=bench
    )
    await running
    return time.perf_counter() - start


if __name__ == "__main__":
    process.answer(main)
