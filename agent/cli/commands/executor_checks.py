"""The checks of `agent doctor` and `agent validate` on executors: what a step's executor lacks."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agent.daemon.step_remarks import executor_problem

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
        used_by = ", ".join(sorted(who))
        if problem is not None:
            yield "executors", "error", f"{problem} (used by {used_by})"
        elif name != "local":
            yield "executors", "ok", f"{name} (used by {used_by})"
