"""The task that `agent run` and `agent up --run` start."""

from typing import TYPE_CHECKING, Any

from agent.cli.errors import CommandError

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.tasks.rules.creation import Submission


def submission(
    settings: "Settings",
    workflow: str,
    values: dict[str, Any],
    texts: dict[str, str],
    priority: str | None = None,
) -> "Submission":
    """Return the task to start, its workflow and its inputs checked."""
    from agent.daemon import workflow_sync
    from agent.tasks.rules.creation import Submission

    found = workflow_sync.find(settings, workflow)
    most = settings.engine.steps_per_task
    if len(found.graph.steps) > most:
        raise CommandError(
            f"{found.graph.name} has {len(found.graph.steps):,} steps,"
            f" and steps_per_task in [engine] allows {most:,}"
        )
    return Submission(
        graph=found.graph,
        input=workflow_sync.checked_inputs(found.graph, values, texts),
        priority=priority,
        trigger={"kind": "manual"},
        source=found.source,
        path=found.path,
    )
