"""The tasks of the local agent: reads and changes its database directly."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import bootstrap
from agent.cli import invocation, other_agents
from agent.cli.client.base import Document
from agent.core.lazy_module import lazy
from agent.core.logs import audit

if TYPE_CHECKING:
    from agent.approvals.answering import Verdict
    from agent.cli import private_files
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database
    from agent.store.read.task_list import TaskFilter
    from agent.tasks.operator import operator
    from agent.tasks.operator.operator import CommandResult, Operator
    from agent.tasks.read_models import (
        spending,
        task_documents,
        task_list,
        transcript,
    )
    from agent.tasks.state import graph_cache
    from agent.workflows.graph import Graph
else:
    # Each command uses one or two of them.
    graph_cache = lazy("agent.tasks.state.graph_cache")
    private_files = lazy("agent.cli.private_files")
    operator = lazy("agent.tasks.operator.operator")
    spending = lazy("agent.tasks.read_models.spending")
    task_documents = lazy("agent.tasks.read_models.task_documents")
    task_list = lazy("agent.tasks.read_models.task_list")
    transcript = lazy("agent.tasks.read_models.transcript")


class LocalTasks:
    """The agent whose database the configuration names: its tasks."""

    def __init__(self, settings: "Settings", *, notify: Callable[[str], None]) -> None:
        self._settings = settings
        self._notify = notify

    def _audited(self, what: str, **details: Any) -> AbstractContextManager[None]:
        audit.configure(self._settings.home)
        return audit.recorded(f"terminal:{invocation.user()}", "command line", what, **details)

    @cached_property
    def _database(self) -> "Database":
        return other_agents.open_database(self._settings)

    @cached_property
    def _reader(self) -> "Connection":
        return self._database.connect("reader")

    @cached_property
    def _operator(self) -> "Operator":
        return operator.Operator(self._database, self._database.clock)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if "_reader" in self.__dict__:
            self._reader.close()

    def find_task(self, text: str) -> str:
        return task_documents.find_named_task(self._reader, text)

    def tasks(self, wanted: "TaskFilter", limit: int, before: str | None) -> Document:
        with self._reader.snapshot():
            return task_list.page(self._reader, wanted, limit, before, has_total=True)

    def task(self, task_id: str) -> Document:
        with self._reader.snapshot():
            return task_documents.task_document(self._reader, task_id)

    def graph(self, workflow: str, version: int) -> "Graph":
        return graph_cache.GraphCache().get(self._reader, workflow, version)

    def calls(self, task_id: str, after: str) -> list[Document]:
        with self._reader.snapshot():
            return transcript.calls_after(self._reader, task_id, after)

    def step(self, task_id: str, step: str) -> Document:
        from agent.tasks.read_models import step_attempts

        with self._reader.snapshot():
            return step_attempts.step_document(self._reader, task_id, step)

    def logs(
        self,
        task_id: str,
        step: str | None,
        attempt: int | None,
        limit: int,
        *,
        after: int = 0,
        before: int | None = None,
    ) -> list[Document]:
        return task_documents.step_logs(self._reader, task_id, step, attempt, after, limit, before)

    def events(
        self, after: str | None, task_id: str | None, limit: int, *, is_newest: bool = False
    ) -> list[Document]:
        return task_documents.read_events(self._reader, after, task_id, limit, is_newest=is_newest)

    def start(
        self, workflow: str, values: Document, texts: dict[str, str], priority: str | None
    ) -> tuple[str, str]:
        from agent.cli.client.submission import local_submission
        from agent.steps.spec.child_workflows import have_children

        private_files.require(self._settings, self._notify)
        submission = local_submission(self._settings, workflow, values, texts, priority)
        graph = submission.graph
        if line := bootstrap.describe_new_database(self._settings):
            self._notify(line)
        bootstrap.open_database(self._settings, create=True)
        if have_children(graph.steps):
            self._record_children(submission.path, graph)
        return self._operator.submit(submission), graph.name

    def _record_children(self, path: str | None, graph: "Graph") -> None:
        from agent.daemon import workflow_sync

        if self.worker_role() != "daemon":
            # A daemon has recorded the workflow directory; without one, children need it here.
            workflow_sync.WorkflowSync(self._settings).sync(self._database)
        if path is not None:
            workflow_sync.record_beside(self._database, Path(path), graph)

    def worker_role(self) -> str | None:
        holder = bootstrap.holder_of(self._database)
        return None if holder is None else holder.role

    def running_tasks(self) -> AbstractContextManager[Callable[[], None]]:
        from agent.cli.client import local_worker

        return local_worker.running_tasks(self._settings, self._database, self._notify)

    def pause(self, task_id: str, reason: str | None) -> "CommandResult":
        with self._audited("pause", task=task_id):
            return self._operator.pause(task_id, reason)

    def resume(self, task_id: str) -> "CommandResult":
        with self._audited("resume", task=task_id):
            return self._operator.resume(task_id)

    def cancel(self, task_id: str) -> "CommandResult":
        with self._audited("cancel", task=task_id):
            return self._operator.cancel(task_id)

    def retry(self, task_id: str, *, is_latest: bool = False) -> "CommandResult":
        with self._audited("retry", task=task_id):
            self._record_newest(task_id, is_chosen=is_latest)
            return self._operator.retry(task_id, is_latest=is_latest)

    def fork(
        self,
        task_id: str,
        from_step: str | None,
        edited: Document | None,
        *,
        is_latest: bool = False,
    ) -> "CommandResult":
        with self._audited("fork", task=task_id, step=from_step):
            self._record_newest(task_id, is_chosen=is_latest)
            return self._operator.fork(task_id, from_step, edited, is_latest=is_latest)

    def _record_newest(self, task_id: str, *, is_chosen: bool) -> None:
        """Record the workflow's file as it is now: without a daemon, no other code notices a change.

        Unless the newest version is chosen, a file that cannot be taken stops nothing.
        """
        from agent.cli.errors import CommandError
        from agent.config.file_exposure import ExposedError
        from agent.daemon import workflow_sync
        from agent.workflows.diagnostics import WorkflowError

        try:
            private_files.require(self._settings, self._notify)
            workflow_sync.record_newest(self._database, self.task(task_id)["workflow"])
        except (CommandError, ExposedError, WorkflowError):
            if is_chosen:
                raise

    def resolve(self, task_id: str, step: str, verdict: "Verdict", output: Any) -> "CommandResult":
        from agent.approvals import answering, permission

        with self._audited("resolve", task=task_id, step=step, verdict=verdict):
            return answering.resolve(
                self._database,
                task_id,
                step,
                verdict,
                output,
                principal=permission.terminal_user(invocation.user()),
            )

    def signal(self, task_id: str, name: str, payload: Any) -> "CommandResult":
        with self._audited("signal", task=task_id, name=name):
            return self._operator.signal(task_id, name, payload)

    def budget(self, task_id: str) -> Document:
        return spending.budget_document(self._reader, task_id)

    def raise_budget(
        self,
        task_id: str,
        *,
        step: str | None,
        tokens: int | None,
        usd: float | None,
        seconds: float | None,
    ) -> "CommandResult":
        from agent.core.money import MICROUSD
        from agent.tasks.operator import budget_pause

        limits = {"tokens": tokens, "usd": usd, "seconds": seconds}
        with self._audited("set budget", task=task_id, step=step, **limits):
            return budget_pause.raise_budget(
                self._operator,
                task_id,
                step=step,
                tokens=tokens,
                microusd=None if usd is None else round(usd * MICROUSD),
                seconds=seconds,
            )
