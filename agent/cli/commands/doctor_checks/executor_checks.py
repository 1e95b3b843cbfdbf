"""The checks of `agent doctor` and `agent validate` on executors: missing libraries, settings or access."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agent.steps.attempt.attempt_limits import JOB_EXECUTORS
from agent.steps.kinds.step_remarks import executor_problem

_PROBE_SECONDS = 10.0
"""How long the store of jobs may take to answer."""

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.workflows.directory import Entry


def executor_checks(
    settings: "Settings", entries: "Iterable[Entry]"
) -> Iterator[tuple[str, str, str]]:
    """Yield (what, state, message) for each executor that is used and cannot run a step here."""
    users: dict[str, set[str]] = {}
    if settings.steps.executor != "local":
        users[settings.steps.executor] = {"executor in [steps]"}
    for entry in entries:
        for step in entry.workflow.graph.steps if entry.workflow is not None else ():
            if step.executor is not None:
                users.setdefault(step.executor["name"], set()).add(f"workflow {entry.name}")
    for name, who in sorted(users.items()):
        problem = executor_problem(name, settings)
        if problem is None and name in JOB_EXECUTORS:
            problem = _store_problem(settings)
        used_by = ", ".join(sorted(who))
        if problem is not None:
            yield "executors", "error", f"{problem} (used by {used_by})"
        elif name != "local":
            yield "executors", "ok", f"{name} (used by {used_by})"


def _store_problem(settings: "Settings") -> str | None:
    """Return why jobs cannot use their store: an object must be created once."""
    from agent import bootstrap
    from agent.core.ids import new_id
    from agent.store.artifacts import objects
    from agent.store.db.database import StoreError

    stores, url = bootstrap.blob_stores_of(settings), settings.jobs_url
    address = f"{url}/doctor-{new_id()}"

    def probe() -> bool:
        options = stores.options(url)
        is_created = [objects.create(address, word, options) for word in (b"first", b"second")]
        objects.remove(address, options)
        return is_created == [True, False]

    try:
        if stores.breaker(url).call(probe, _PROBE_SECONDS):
            return None
        return f"the store of jobs at {url} cannot create an object only if it does not exist"
    except (StoreError, OSError) as error:
        return f"the store of jobs cannot be used at {url}: {error}"
