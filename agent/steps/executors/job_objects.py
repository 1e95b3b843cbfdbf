"""The objects of one job, by which the agent and the job know of each other.

They are below `STORE/KEY/ATTEMPT-LEASE/`: the key for remotes of the call, the attempt, and the id of
the call. All of it is recorded with the intent, before any object exists. They are removed with their
task (`store.artifacts.job_paths`).

| object | by | meaning |
|---|---|---|
| `spec.json` | agent | what to run |
| `launched` | agent | the launcher has accepted it |
| `begun` | created once | by the job, which then runs; or by the agent, and the job never runs |
| `status.json` | job | a sequence number that grows, the state, the number of log objects |
| `log-N.json` | job | pieces of the log |
| `output.json` | job | the output, written before the final status |
| `control.json` | agent | that the job should stop, or pause at its next checkpoint |
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agent.steps.types.call_records import RecordedCall
from agent.steps.types.outcome import Json
from agent.store.artifacts import job_paths, objects
from agent.store.artifacts.blobs import Options
from agent.store.artifacts.job_paths import JobCall

SPEC: Final = "spec.json"
LAUNCHED: Final = "launched"
BEGUN: Final = "begun"
STATUS: Final = "status.json"
OUTPUT: Final = "output.json"
CONTROL: Final = "control.json"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobObjects:
    """The objects of one job. Its functions block: call them in a thread."""

    base: str
    """The address that they are below."""
    options: Callable[[], Options]
    """The options of the store's driver; they may hold secrets, so they are read at each use."""

    @property
    def spec_address(self) -> str:
        """The address of the specification: what `TASK_SPEC_PATH` names."""
        return f"{self.base}/{SPEC}"

    @property
    def lease(self) -> str:
        """The id of the call that launched it."""
        return self.base.rpartition("-")[2]

    def create(self, name: str, document: Document) -> bool:
        """Create an object once; return whether this call has created it."""
        return objects.create(f"{self.base}/{name}", _encoded(document), self.options())

    def write(self, name: str, document: Document) -> None:
        """Write an object, or replace it."""
        objects.write(f"{self.base}/{name}", _encoded(document), self.options())

    def read(self, name: str) -> Json:
        """Return an object; None if it does not exist."""
        content = objects.read(f"{self.base}/{name}", self.options())
        # An object that was created a moment ago may still be empty.
        return None if content is None else json.loads(content or b"{}")


def log_name(number: int) -> str:
    """Return the name of a piece of the log, from 1."""
    return f"log-{number:06d}.json"


def of_call(
    url: str, options: Callable[[], Options], remote_key: str, attempt: int, call_id: str
) -> JobObjects:
    """Return the objects of the job that a call launches."""
    return JobObjects(job_paths.directory(url, JobCall(remote_key, attempt, call_id)), options)


def of_recorded(url: str, options: Callable[[], Options], call: RecordedCall) -> JobObjects | None:
    """Return the objects of a recorded call; None where a retry inherited it and there are none."""
    if call.attempt > 0:
        return of_call(url, options, call.remote_key, call.attempt, call.call_id)
    # An inherited call has a new id; ids grow with time, so the last one was launched last.
    group = job_paths.group(url, call.remote_key)
    names = objects.names_below(group, options())
    leases = sorted((name.rpartition("-")[2], name) for name in names)
    return JobObjects(f"{group}/{leases[-1][1]}", options) if leases else None


def of_spec(address: str, options: Callable[[], Options]) -> JobObjects:
    """Return the objects of a job by the address of its specification."""
    return JobObjects(address.rpartition("/")[0], options)


def _encoded(document: Document) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
