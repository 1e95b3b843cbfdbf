"""Where the objects of jobs are: `STORE/KEY/ATTEMPT-LEASE/`, and their removal with their tasks.

KEY is the call's key for remotes, LEASE the id of the call that launched the job. A job and its agent know
of each other by these objects (`steps.executors.job_objects`); nothing reads them once the task is gone.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from agent.store.artifacts import objects
from agent.store.artifacts.blobs import BlobStores
from agent.store.db.database import Connection, StoreError
from agent.store.db.json_values import encode

EXECUTORS: Final = ("job", "ray", "dask")
"""The executors whose jobs have objects: the action of the call that launches one."""
_KEY_CHARS: Final = 32


class JobCall(NamedTuple):
    """The call that launched a job."""

    remote_key: str
    attempt: int
    call_id: str


def group(url: str, remote_key: str) -> str:
    """Return the address below which all jobs of one key are."""
    base = url.removeprefix("file://").rstrip("/")
    return f"{base}/{remote_key[:_KEY_CHARS]}"


def directory(url: str, call: JobCall) -> str:
    """Return the address below which the objects of one job are."""
    lease = call.call_id.replace("-", "")
    return f"{group(url, call.remote_key)}/{call.attempt}-{lease}"


def of_tasks(connection: Connection, task_ids: Iterable[str]) -> list[JobCall]:
    """Return the calls of tasks that launched jobs; one that a retry inherited launched none."""
    # An action ends with the number of its call.
    actions = " OR ".join(f"action LIKE '{name}#%'" for name in EXECUTORS)
    rows = connection.query(
        "SELECT remote_key, attempt, id FROM tool_calls"
        f" WHERE task_id IN {connection.sql.ids()} AND ({actions}) AND attempt > 0",
        ids=encode(list(task_ids), "ids"),
    )
    return [JobCall(*row) for row in rows]


def remove(stores: BlobStores, calls: Iterable[JobCall]) -> None:
    """Remove the objects of jobs, as far as their store answers: the rest only takes space."""
    url = stores.jobs_url
    if not url:
        return
    for call in calls:
        address = directory(url, call)
        try:
            stores.breaker(url).call(
                lambda: objects.remove_below(address, stores.options(url)),  # noqa: B023
                stores.timeout_seconds,
            )
        except StoreError:
            return
