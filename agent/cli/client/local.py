"""The client of the local agent: works on its database directly."""

from typing import TYPE_CHECKING, Any

from agent import bootstrap
from agent.cli import invocation
from agent.cli.client.base import Document
from agent.cli.client.local_tasks import LocalTasks
from agent.core.lazy_module import lazy

if TYPE_CHECKING:
    from agent.approvals import approval_documents, permission
    from agent.approvals.answering import AnswerVerb
    from agent.tasks.operator.operator import CommandResult
    from agent.tasks.operator.state_commands import StateResult
    from agent.tasks.read_models import (
        spending,
        task_documents,
        workflow_documents,
    )
    from agent.triggers.commands.command_plan import TriggerResult
    from agent.triggers.commands.command_request import TriggerRequest
else:
    # Each command uses one or two of them.
    approval_documents = lazy("agent.approvals.approval_documents")
    permission = lazy("agent.approvals.permission")
    spending = lazy("agent.tasks.read_models.spending")
    task_documents = lazy("agent.tasks.read_models.task_documents")
    workflow_documents = lazy("agent.tasks.read_models.workflow_documents")


class LocalClient(LocalTasks):
    """The agent whose database the configuration names."""

    def load(self) -> Document:
        from agent.tasks.read_models.load import load_document

        return load_document(self._reader, self._settings, self._database.clock.now())

    def day(self) -> Document:
        now = self._database.clock.now()
        return spending.day_document(self._reader, self._settings.budget, now)

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
        from agent.triggers.commands.trigger_commands import TriggerCommands

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
        from agent.triggers.commands.command_request import perform
        from agent.triggers.commands.trigger_commands import TriggerCommands

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

        bootstrap.redact_configured_secrets(self._settings)
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
            queues: list[Document] = work_documents.queues(self._reader)["queues"]
            return queues

    def dead_letters(self, queue: str | None, code: str | None, limit: int) -> list[Document]:
        from agent.tasks.read_models import work_documents

        return work_documents.dead_letters(self._reader, queue=queue, code=code, most=limit)

    def requeue(self, work_id: str, not_before: str | None, reason: str | None) -> "CommandResult":
        from agent.core.local_zone import machine_zone
        from agent.tasks.operator import work_commands
        from agent.triggers.commands.command_request import later

        database = self._database
        instant = None
        if not_before is not None:
            instant = later(not_before, machine_zone(), database.clock.now())
        with self._audited("requeue", work=work_id):
            return work_commands.requeue_dead(self._operator, database, work_id, instant, reason)
