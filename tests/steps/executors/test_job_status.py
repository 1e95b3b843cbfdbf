"""The status of a job: the last one that is written is the final one."""

import asyncio
import threading
from typing import Any, ClassVar

import pytest

from agent.steps.executors import job_objects, job_runner
from agent.steps.executors.job_objects import JobObjects
from agent.steps.types.outcome import Outcome, Succeeded

SPEC = {"status_seconds": 0.01}


class SlowObjects(JobObjects):
    """Objects whose store takes its time over a sign of life, once the job is about to end."""

    written: ClassVar[list[str]] = []
    began = threading.Event()
    is_final = threading.Event()

    def write(self, name: str, document: dict[str, Any]) -> None:
        """Record a status; the second one arrives after the final one, if that does not wait for it."""
        if name != job_objects.STATUS:
            return
        if document["state"] == "running" and document["sequence"] == 2:
            self.began.set()
            self.is_final.wait(0.5)
        self.written.append(document["state"])
        if document["state"] != "running":
            self.is_final.set()


class EndingJob(job_runner.Job):
    """A job that ends while a sign of life is being written."""

    async def _attempt(self) -> Outcome:
        await asyncio.to_thread(SlowObjects.began.wait, 10)
        return Succeeded("done")


@pytest.mark.timeout(30)
def test_a_sign_of_life_does_not_replace_the_final_status() -> None:
    """A thread that writes it cannot be stopped, so the final status waits for it."""
    objects = SlowObjects("nowhere/1-2", dict)
    assert asyncio.run(EndingJob(objects, SPEC).run())
    assert SlowObjects.written == ["running", "running", "succeeded"]
