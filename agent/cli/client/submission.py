"""The task that `agent run` and `agent up --run` start on this machine."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.tasks.rules.creation import Submission


def local_submission(
    settings: "Settings",
    workflow: str,
    values: dict[str, Any],
    texts: dict[str, str],
    priority: str | None = None,
) -> "Submission":
    """Return the task to start, its workflow and its inputs checked."""
    from agent import bootstrap
    from agent.tasks.submission import (
        StartableWorkflow,
        find_workflow,
        new_submission,
        recorded_workflow,
    )

    def recorded(name: str) -> StartableWorkflow | None:
        if not bootstrap.has_database(settings):
            return None
        with bootstrap.open_database(settings).connect("reader") as connection:
            return recorded_workflow(connection, name)

    return new_submission(
        find_workflow(workflow, settings.workflow_directory, recorded),
        steps_per_task=settings.engine.steps_per_task,
        trigger={"kind": "manual"},
        values=values,
        texts=texts,
        priority=priority,
    )
