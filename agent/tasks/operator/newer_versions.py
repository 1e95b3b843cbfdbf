"""The newer versions of a task's workflow: which one a retry or a fork may choose, and the remark about it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from agent.store.db.database import Connection
from agent.store.engine import reads, task_rows, workflow_versions
from agent.tasks.errors import RefusedError
from agent.tasks.rules.retries import retry_fork
from agent.tasks.rules.retries.retry_fork import NewestVersion
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TASK_COLUMNS, TaskRow
from agent.workflows.compile.inputs import InputError


def already_retried(tx: Connection, again: str, *, is_latest: bool) -> str:
    """Say that a task was retried before; and that its version stays, where the newest was asked for."""
    message = f"already retried as {again}"
    name, version = task_rows.workflow_of(tx, again)
    newest = workflow_versions.latest_number(tx, name)
    if not is_latest or newest is None or newest <= version:
        return message
    return (
        f"{message}, on version {version}; version {newest} of {name} is newer:"
        " once that task has ended, retry it with --latest"
    )


def refusal(
    connection: Connection,
    graphs: GraphCache,
    task_id: str,
    now: int,
    from_step: str | None = None,
) -> str | None:
    """Return why a retry, or a fork from a step, would be refused on the newest version; else None.

    For surfaces that offer it: read in a snapshot, without a lock. It reads every step of the task.
    """
    (values,) = reads.tasks_at(connection, TASK_COLUMNS, [task_id])
    task = TaskRow.read(values)
    try:
        graph = graphs.get(connection, task.workflow_name, task.workflow_version)
        old = LockedTask(task, graph, now)
        versions = NewerVersions(connection, graphs, old)
        latest = versions.chosen()
        if from_step is None:
            with versions.explained():
                retry_fork.check_retry(connection, old, latest)
        elif from_step not in latest.graph.index_of:
            return f"version {latest.number} has no step {from_step!r}"
        else:
            # A person may edit an input that does not fit.
            with suppress(InputError):
                retry_fork.check_fork(connection, old, from_step, latest)
    except (RefusedError, UnreadableError) as error:
        return str(error)
    return None


def asked_again(steps: Mapping[str, Sequence[str]], reason: str = "") -> str:
    """Return a remark about steps whose question is asked again, with the changes that an answer does not cover.

    `reason` is that of steps without changes.
    """
    plain = [name for name, changes in steps.items() if not changes]
    text = f"; {reason}asked again: {', '.join(plain)}" if plain else ""
    for name, changes in steps.items():
        if changes:
            text += f"; asked again: {name}, whose answer does not cover {'; '.join(changes)}"
    return text


class NewerVersions:
    """The recorded versions of a task's workflow besides the task's own."""

    def __init__(self, tx: Connection, graphs: GraphCache, old: LockedTask) -> None:
        self._tx = tx
        self._graphs = graphs
        self._name = old.task.workflow_name
        self._own = old.task.workflow_version
        self._newest = workflow_versions.latest_number(tx, self._name)
        self._is_chosen = False

    def chosen(self) -> NewestVersion:
        """Return the newest version; raise `RefusedError` if the workflow was removed."""
        if self._newest is None:
            raise RefusedError(
                f"the workflow {self._name!r} was removed: it has no newest version;"
                " without --latest the task goes on with its own"
            )
        self._is_chosen = True
        graph = self._graphs.get(self._tx, self._name, self._newest)
        return NewestVersion(self._newest, graph)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say of an input that it does not fit the version that was chosen."""
        try:
            yield
        except InputError as error:
            if not self._is_chosen:
                raise
            text = f"the input does not fit version {self._newest} of {self._name}: {error}"
            raise RefusedError(text) from None

    def remark(self, new: LockedTask) -> str:
        """Return a remark for the message of a command: the version, or that there is a newer one."""
        if self._is_chosen:
            if self._newest == self._own:
                return f"; version {self._own} of {self._name} is the newest"
            return f" on version {new.task.workflow_version} of {self._name}, after {self._own}"
        if self._newest is not None and self._newest > self._own:
            return (
                f" on its own version, {self._own}; version {self._newest} of {self._name} is newer:"
                " --latest goes on with that"
            )
        return ""
