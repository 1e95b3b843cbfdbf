"""The client of the local agent: works on its database directly."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import bootstrap
from agent.cli import invocation, private_files
from agent.cli.client.base import Document
from agent.core import audit
from agent.core.lazy_module import lazy

if TYPE_CHECKING:
    from agent.approvals import approval_documents, permission
    from agent.approvals.answering import AnswerVerb
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database
    from agent.store.read.task_list import TaskFilter
    from agent.tasks.operator import operator
    from agent.tasks.operator.operator import CommandResult, Operator, Verdict
    from agent.tasks.operator.state_commands import StateResult
    from agent.tasks.read_models import (
        spending,
        task_documents,
        task_list,
        transcript,
        workflow_documents,
    )
    from agent.tasks.state import graph_cache
    from agent.triggers.command_plan import TriggerResult
    from agent.triggers.command_request import TriggerRequest
    from agent.workflows.graph import Graph
else:
    # Each command uses one or two of them.
    approval_documents = lazy("agent.approvals.approval_documents")
    graph_cache = lazy("agent.tasks.state.graph_cache")
    operator = lazy("agent.tasks.operator.operator")
    permission = lazy("agent.approvals.permission")
    spending = lazy("agent.tasks.read_models.spending")
    task_documents = lazy("agent.tasks.read_models.task_documents")
    task_list = lazy("agent.tasks.read_models.task_list")
    transcript = lazy("agent.tasks.read_models.transcript")
    workflow_documents = lazy("agent.tasks.read_models.workflow_documents")


class LocalClient:
    """The agent whose database the configuration names."""

    def __init__(self, settings: "Settings", *, notify: Callable[[str], None]) -> None:
        self._settings = settings
        self._notify = notify

    def _audited(self, what: str, **details: Any) -> AbstractContextManager[None]:
        audit.configure(self._settings.home)
        return audit.recorded(f"terminal:{invocation.user()}", "command line", what, **details)

    @cached_property
    def _database(self) -> "Database":
        return bootstrap.open_database(self._settings)

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
        return task_documents.find_task(self._reader, text)

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
        from agent.steps.spec.child_workflows import has_children

        private_files.require(self._settings, self._notify)
        submission = local_submission(self._settings, workflow, values, texts, priority)
        graph = submission.graph
        if line := bootstrap.describe_new_database(self._settings):
            self._notify(line)
        bootstrap.open_database(self._settings, create=True)
        if has_children(graph):
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
            if is_latest:
                self._record_newest(task_id)
            return self._operator.retry(task_id, is_latest=is_latest)

    def fork(
        self, task_id: str, from_step: str, edited: Document | None, *, is_latest: bool = False
    ) -> "CommandResult":
        with self._audited("fork", task=task_id, step=from_step):
            if is_latest:
                self._record_newest(task_id)
            return self._operator.fork(task_id, from_step, edited, is_latest=is_latest)

    def _record_newest(self, task_id: str) -> None:
        """Record the workflow's file as it is now: without a daemon, this is what notices a change."""
        from agent.daemon import workflow_sync

        private_files.require(self._settings, self._notify)
        workflow_sync.record_newest(self._database, self.task(task_id)["workflow"])

    def resolve(self, task_id: str, step: str, verdict: "Verdict", output: Any) -> "CommandResult":
        with self._audited("resolve", task=task_id, step=step, verdict=verdict):
            return self._operator.resolve(task_id, step, verdict, output, by=invocation.user())

    def signal(self, task_id: str, name: str, payload: Any) -> "CommandResult":
        with self._audited("signal", task=task_id, name=name):
            return self._operator.signal(task_id, name, payload)

    def budget(self, task_id: str) -> Document:
        return spending.budget_document(self._reader, task_id)

    def load(self) -> Document:
        from agent.tasks.read_models.load import load_document

        return load_document(self._reader, self._settings, self._database.clock.now())

    def day(self) -> Document:
        now = self._database.clock.now()
        return spending.day_document(self._reader, self._settings.budget, now)

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

    def conversations(self, limit: int) -> list[Document]:
        from agent.tasks.read_models import conversations

        return conversations.list_conversations(self._reader, limit)

    def conversation(self, name: str, after: int, limit: int) -> Document:
        from agent.tasks.read_models import conversations

        return conversations.conversation_document(self._reader, name, after, limit)

    def forget_conversation(self, name: str) -> Document:
        from agent.tasks.operator import conversations

        with self._audited("forget conversation", conversation=name):
            return conversations.forget(self._database, name)

    def find_approval(self, text: str) -> str:
        return approval_documents.find_approval(self._reader, text)

    def approvals(self, *, is_all: bool, limit: int) -> list[Document]:
        return approval_documents.list_approvals(self._reader, is_all=is_all, limit=limit)

    def approval(self, approval_id: str) -> Document:
        return approval_documents.approval_document(self._reader, approval_id)

    def decide(
        self,
        approval_id: str,
        decision: "AnswerVerb",
        *,
        comment: str | None,
        value: Any,
        edits: Document | None,
    ) -> None:
        from agent.approvals import answering

        with self._audited(decision, approval=approval_id):
            answering.answer(
                self._database,
                approval_id,
                decision,
                principal=permission.terminal_user(invocation.user()),
                comment=comment,
                value=value,
                edits=edits,
            )

    def defer(self, approval_id: str, seconds: float) -> None:
        from agent.approvals import answering

        with self._audited("defer", approval=approval_id, seconds=seconds):
            answering.defer(
                self._database,
                approval_id,
                seconds,
                principal=permission.terminal_user(invocation.user()),
            )

    def workflows(self) -> list[Document]:
        from agent.daemon import workflow_overview

        has_database = bootstrap.has_database(self._settings)
        return workflow_overview.overview(self._settings, self._reader if has_database else None)

    def workflow(self, name: str, version: int | None) -> Document:
        with self._reader.snapshot():
            return workflow_documents.workflow_document(self._reader, name, version)

    def artifact(self, beginning: str) -> bytes:
        return task_documents.find_artifact(self._reader, beginning)

    def triggers(self, kind: str | None, status: str | None) -> list[Document]:
        from agent.triggers import documents

        now = self._database.clock.now()
        with self._reader.snapshot():
            return documents.trigger_list(self._reader, kind, now=now, status=status)

    def find_trigger(self, text: str, kind: str | None) -> str:
        from agent.triggers.commands import TriggerCommands

        return TriggerCommands(self._database, self._database.clock).find(text, kind).id

    def trigger(self, trigger_id: str) -> Document:
        from agent.triggers import documents

        now = self._database.clock.now()
        with self._reader.snapshot():
            row = documents.find_row(self._reader, trigger_id)
            return documents.trigger_document(self._reader, row, now)

    def firings(self, trigger_id: str, limit: int) -> list[Document]:
        from agent.triggers import documents

        return documents.firings_page(self._reader, trigger_id, limit)[0]

    def change_trigger(self, trigger_id: str, request: "TriggerRequest") -> "TriggerResult":
        from agent.triggers.command_request import perform
        from agent.triggers.commands import TriggerCommands

        clock = self._database.clock
        with self._audited(f"{request.verb} trigger", trigger=trigger_id):
            commands = TriggerCommands(self._database, clock)
            return perform(commands, trigger_id, request, clock.now())

    def check_trigger(self, trigger_id: str) -> Document:
        from agent.triggers.check import check_watcher

        clock, limits = self._database.clock, bootstrap.limits_of(self._settings)
        with self._audited("check trigger", trigger=trigger_id):
            return check_watcher(self._database, clock, limits, trigger_id)

    def memories(
        self, scope: str | None, query: str | None, limit: int, *, has_forgotten: bool
    ) -> list[Document]:
        from agent.tool_services import memories

        with self._reader.snapshot():
            if query:
                return memories.search(self._reader, scope, query, limit)
            return memories.list_memories(self._reader, scope, limit, has_forgotten=has_forgotten)

    def memory(self, memory_id: int) -> Document:
        from agent.tool_services import memories

        return memories.show(self._reader, memory_id)

    def add_memory(self, scope: str, text: str) -> Document:
        from agent.tool_services.memories import Memories

        bootstrap.hide_secrets(self._settings)
        with self._audited("add memory", scope=scope):
            memories = Memories(self._database, self._database.clock)
            return memories.remember(scope, text, written_by=f"terminal:{invocation.user()}")

    def forget_memory(self, memory_id: int) -> Document:
        from agent.tool_services.memories import Memories

        with self._audited("forget memory", memory=memory_id):
            return Memories(self._database, self._database.clock).forget(memory_id)

    def state_values(self, scope: str | None, name: str | None) -> list[Document]:
        from agent.tasks.read_models import state_documents

        return state_documents.list_values(self._reader, scope, name)

    def state_value(self, scope: str, name: str) -> Document:
        from agent.tasks.read_models import state_documents

        return state_documents.value_document(self._reader, (scope, name))

    def set_state(self, scope: str, name: str, value: Any, if_version: int | None) -> "StateResult":
        from agent.tasks.operator import state_commands

        database, by = self._database, f"terminal:{invocation.user()}"
        with self._audited("set state", scope=scope, name=name):
            return state_commands.set_value(
                database, database.clock, (scope, name), value, by=by, if_version=if_version
            )

    def delete_state(self, scope: str, name: str, if_version: int | None) -> "StateResult":
        from agent.tasks.operator import state_commands

        database, by = self._database, f"terminal:{invocation.user()}"
        with self._audited("delete state", scope=scope, name=name):
            return state_commands.delete_value(
                database, database.clock, (scope, name), by=by, if_version=if_version
            )

    def queues(self) -> list[Document]:
        from agent.tasks.read_models import work_documents

        with self._reader.snapshot():
            found: list[Document] = work_documents.queues(self._reader)["queues"]
            return found

    def dead_letters(self, queue: str | None, code: str | None, limit: int) -> list[Document]:
        from agent.tasks.read_models import work_documents

        return work_documents.dead_letters(self._reader, queue=queue, code=code, most=limit)

    def requeue(self, work_id: str, not_before: str | None, reason: str | None) -> "CommandResult":
        from agent.core.local_zone import machine_zone
        from agent.tasks.operator import work_commands
        from agent.triggers.command_request import later

        database = self._database
        instant = None
        if not_before is not None:
            instant = later(not_before, machine_zone(), database.clock.now())
        with self._audited("requeue", work=work_id):
            return work_commands.requeue_dead(self._operator, database, work_id, instant, reason)
