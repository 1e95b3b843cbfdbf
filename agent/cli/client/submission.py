"""The task that `agent run` and `agent up --run` start on this machine."""

from typing import TYPE_CHECKING, Any

from agent.cli.client import compiled_files

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.tasks.rules.creation import Submission
    from agent.tasks.submission import StartableWorkflow


def local_submission(
    settings: "Settings",
    workflow: str,
    values: dict[str, Any],
    texts: dict[str, str],
    priority: str | None = None,
) -> "Submission":
    """Return the task to start, its workflow and its inputs checked."""
    from agent import bootstrap
    from agent.cli import other_agents
    from agent.tasks.errors import NotFoundError
    from agent.tasks.submission import find_workflow, new_submission, recorded_workflow

    def recorded(name: str) -> "StartableWorkflow | None":
        if not bootstrap.has_database(settings):
            return None
        with bootstrap.open_database(settings).connect("reader") as connection:
            return recorded_workflow(connection, name)

    loaded = _unchanged(settings, workflow)
    if loaded is None:
        try:
            loaded = find_workflow(workflow, settings.workflow_directory, recorded)
        except NotFoundError as error:
            if other_agents.is_agents(settings):
                raise
            raise NotFoundError(
                f"{error}{other_agents.elsewhere(settings, has_last=True)}"
            ) from None
        if loaded.source is not None:
            compiled_files.add(loaded.source, loaded.graph.hash)
    return new_submission(
        loaded,
        steps_per_task=settings.engine.steps_per_task,
        trigger={"kind": "manual"},
        values=values,
        texts=texts,
        priority=priority,
    )


def _unchanged(settings: "Settings", workflow: str) -> "StartableWorkflow | None":
    """Return the recorded workflow of a file that has not changed since: compiling is slow."""
    from agent import bootstrap
    from agent.store.db.database import StoreError
    from agent.tasks.submission import unchanged_workflow
    from agent.workflows.file_names import file_of

    path = file_of(workflow)
    if path is None or not bootstrap.has_database(settings):
        return None
    try:
        with bootstrap.open_database(settings).connect("reader") as connection:
            return unchanged_workflow(connection, path, compiled_files.has)
    except StoreError:
        # A database that has to be upgraded first; any other problem shows again.
        return None
