"""The client of a remote agent: calls its HTTP API."""

from typing import TYPE_CHECKING, Any, Final

from agent.cli.client.base import Document
from agent.cli.client.remote_tasks import RemoteTasks, quoted
from agent.core.ids import new_id
from agent.core.state_names import SHARED, workflow_of
from agent.tasks.operator.operator import CommandResult
from agent.tasks.read_models import task_documents

if TYPE_CHECKING:
    from agent.approvals.answering import AnswerVerb
    from agent.tasks.operator.state_commands import StateResult
    from agent.triggers.commands.command_plan import TriggerResult
    from agent.triggers.commands.command_request import TriggerRequest

_TASKS_PAGE: Final = 500
_PAGE: Final = 1000


class RemoteClient(RemoteTasks):
    """The agent at a URL."""

    def load(self) -> Document:
        return self._document("load")

    def day(self) -> Document:
        return self._document("budget")

    def conversations(self, limit: int) -> list[Document]:
        listed: list[Document] = self._http.get("conversations", limit=min(limit, _PAGE))[
            "conversations"
        ]
        return listed

    def conversation(self, name: str, after: int, limit: int) -> Document:
        path = f"conversations/{quoted(name)}"
        document: Document = self._http.get(path, after=after, limit=min(limit, _PAGE))
        return document

    def forget_conversation(self, name: str) -> Document:
        document: Document = self._http.post(f"conversations/{quoted(name)}/forget")
        return document

    def find_approval(self, text: str) -> str:
        return task_documents.find_one(
            text, "approval", lambda part: self._ids("approvals", id=part, all=True)
        )

    def approvals(self, *, is_all: bool, limit: int) -> list[Document]:
        return self._listed("approvals", _PAGE, limit, all=is_all)

    def approval(self, approval_id: str) -> Document:
        return self._document(f"approvals/{approval_id}")

    def decide(
        self,
        approval_id: str,
        decision: "AnswerVerb",
        *,
        comment: str | None,
        value: Any,
        edits: Document | None,
    ) -> None:
        bodies: dict[str, Document] = {
            "approve": {"comment": comment, "edits": edits or {}},
            "deny": {"reason": comment},
            "answer": {"value": value, "comment": comment},
        }
        self._http.post(f"approvals/{approval_id}/{decision}", bodies[decision])

    def defer(self, approval_id: str, seconds: float) -> None:
        self._http.post(f"approvals/{approval_id}/defer", {"seconds": seconds})

    def workflows(self) -> list[Document]:
        return [
            {
                **{name: entry[name] for name in ("name", "version", "tasks", "file")},
                "description": entry["description"],
                "remarks": [],
            }
            for entry in self._http.get("workflows")["workflows"]
        ]

    def artifact(self, beginning: str) -> bytes:
        return self._http.read(f"artifacts/{beginning}").content

    def triggers(self, kind: str | None, status: str | None) -> list[Document]:
        return self._listed("triggers", _TASKS_PAGE, 2**31, kind=kind, status=status)

    def find_trigger(self, text: str, kind: str | None) -> str:
        from agent.triggers.documents import find_trigger

        removed = self.triggers(None, "removed")
        return find_trigger([*self.triggers(None, None), *removed], text, kind)

    def trigger(self, trigger_id: str) -> Document:
        return self._document(f"triggers/{quoted(trigger_id)}")

    def firings(self, trigger_id: str, limit: int) -> list[Document]:
        path = f"triggers/{quoted(trigger_id)}/firings"
        return self._listed("firings", _PAGE, limit, path=path)

    def change_trigger(self, trigger_id: str, request: "TriggerRequest") -> "TriggerResult":
        from agent.triggers.commands.command_plan import TriggerResult

        bodies: dict[str, Document] = {
            "pause": {"until": request.until, "reason": request.reason},
            "resume": {"catch_up": request.catch_up},
            "backfill": {
                "from": request.first,
                "to": request.last,
                "most": request.most,
                "dry_run": request.dry_run,
            },
        }
        path = f"triggers/{quoted(trigger_id)}/{request.verb}"
        key = new_id() if request.verb in ("run", "skip") else None
        answer = self._http.post(path, bodies.get(request.verb), key=key)
        return TriggerResult(
            answer["changed"],
            answer["message"],
            answer["trigger_id"],
            answer["tasks"],
            answer["instants"],
        )

    def check_trigger(self, trigger_id: str) -> Document:
        document: Document = self._http.post(f"triggers/{quoted(trigger_id)}/check")
        return document

    def memories(
        self, scope: str | None, query: str | None, limit: int, *, has_forgotten: bool
    ) -> list[Document]:
        forgotten = "true" if has_forgotten else None
        if query:
            memories: list[Document] = self._http.get(
                "memories", scope=scope, q=query, limit=limit
            )["memories"]
            return memories
        return self._listed("memories", _TASKS_PAGE, limit, scope=scope, forgotten=forgotten)

    def memory(self, memory_id: int) -> Document:
        return self._document(f"memories/{memory_id}")

    def add_memory(self, scope: str, text: str) -> Document:
        added: Document = self._http.post("memories", {"scope": scope, "text": text}, key=new_id())
        return added

    def forget_memory(self, memory_id: int) -> Document:
        forgotten: Document = self._http.post(f"memories/{memory_id}/forget")
        return forgotten

    def state_values(self, scope: str | None, name: str | None) -> list[Document]:
        workflow = None if scope is None else workflow_of(scope)
        return self._listed(
            "state", _PAGE, 2**31, workflow=workflow, shared=scope == SHARED, name=name
        )

    def state_value(self, scope: str, name: str) -> Document:
        return self._document(f"state/{quoted(scope)}/{quoted(name)}")

    def set_state(self, scope: str, name: str, value: Any, if_version: int | None) -> "StateResult":
        body = {"value": value, "if_version": if_version}
        return self._change_state(f"state/{quoted(scope)}/{quoted(name)}", body)

    def delete_state(self, scope: str, name: str, if_version: int | None) -> "StateResult":
        path = f"state/{quoted(scope)}/{quoted(name)}/delete"
        return self._change_state(path, {"if_version": if_version})

    def _change_state(self, path: str, body: Document) -> "StateResult":
        from agent.tasks.operator.state_commands import StateResult

        answer = self._http.post(path, body)
        return StateResult(answer["changed"], answer["message"], answer["version"])

    def queues(self) -> list[Document]:
        queues: list[Document] = self._http.get("work/queues")["queues"]
        return queues

    def dead_letters(self, queue: str | None, code: str | None, limit: int) -> list[Document]:
        return self._listed("dead", _TASKS_PAGE, limit, path="work/dead", queue=queue, code=code)

    def requeue(self, work_id: str, not_before: str | None, reason: str | None) -> CommandResult:
        body = {"not_before": not_before, "reason": reason}
        return self._command(f"work/dead/{work_id}/requeue", body)
