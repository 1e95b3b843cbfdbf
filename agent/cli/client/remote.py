"""The client of a remote agent: calls its HTTP API."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agent.cli.client.base import Document
from agent.cli.client.transport import Transport
from agent.cli.errors import CommandError
from agent.core.clock import to_iso
from agent.core.ids import new_id
from agent.core.state_names import SHARED, workflow_of
from agent.tasks.operator.operator import CommandResult, Verdict
from agent.tasks.read_models import task_documents
from agent.workflows.graph import Graph

if TYPE_CHECKING:
    from agent.approvals.answering import AnswerVerb
    from agent.config.settings import Settings
    from agent.store.read.task_list import TaskFilter
    from agent.tasks.operator.state_commands import StateResult
    from agent.triggers.command_plan import TriggerResult
    from agent.triggers.command_request import TriggerRequest

_TASKS_PAGE: Final = 500
_PAGE: Final = 1000
_NEWEST: Final = 10_000


class RemoteClient:
    """The agent at a URL."""

    def __init__(self, url: str, settings: "Settings", *, notify: Callable[[str], None]) -> None:
        self._http = Transport(url, settings, notify=notify)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def find_task(self, text: str) -> str:
        return task_documents.find_one(text, "task", lambda part: self._ids("tasks", id=part))

    def tasks(self, wanted: "TaskFilter", limit: int, before: str | None) -> Document:
        query = {
            "status": wanted.statuses or None,
            "activity": wanted.activities or None,
            "workflow": wanted.workflow,
            "trigger": wanted.trigger,
            "since": to_iso(wanted.since),
            "search": wanted.search,
        }
        size = min(_TASKS_PAGE, limit)
        page: Document = self._http.get("tasks", **query, cursor=before, limit=size, total=True)
        # A search that stopped early has used its time: the next command continues it.
        while len(page["tasks"]) < limit and page["next"] and wanted.search is None:
            size = min(_TASKS_PAGE, limit - len(page["tasks"]))
            more = self._http.get("tasks", **query, cursor=page["next"], limit=size)
            page |= {"tasks": page["tasks"] + more["tasks"], "next": more["next"]}
        return page

    def task(self, task_id: str) -> Document:
        return self._document(f"tasks/{task_id}")

    def graph(self, workflow: str, version: int) -> Graph:
        return Graph.model_validate(self.workflow(workflow, version)["graph"])

    def calls(self, task_id: str, after: str) -> list[Document]:
        calls: list[Document] = self._http.get(f"tasks/{task_id}/calls", after=after)["calls"]
        return calls

    def step(self, task_id: str, step: str) -> Document:
        return self._document(f"tasks/{task_id}/steps/{_quoted(step)}")

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
        of = f"tasks/{task_id}" if step is None else f"tasks/{task_id}/steps/{_quoted(step)}"
        pieces: list[Document] = self._http.get(
            f"{of}/logs", attempt=attempt, after=after, before=before, limit=limit
        )["logs"]
        return pieces

    def events(
        self, after: str | None, task_id: str | None, limit: int, *, is_newest: bool = False
    ) -> list[Document]:
        events: list[Document] = []
        if is_newest:
            size = min(_NEWEST, limit)
            page = self._http.get("events", after=after, task=task_id, limit=size, newest=True)
            events += page["events"]
            return events
        while len(events) < limit:
            page_size = min(_PAGE, limit - len(events))
            page = self._http.get("events", after=after, task=task_id, limit=page_size)
            events += page["events"]
            after = page["cursor"]
            if len(page["events"]) < page_size:
                break
        return events

    def start(
        self, workflow: str, values: Document, texts: dict[str, str], priority: str | None
    ) -> tuple[str, str]:
        from agent.workflows import loader
        from agent.workflows.compile.inputs import read_inputs
        from agent.workflows.file_names import file_of

        if (path := file_of(workflow)) is not None:
            if path.suffix == ".py":
                raise CommandError(
                    f"{path} is a workflow in Python, and an agent over HTTP takes YAML or JSON"
                    " only; run the file on that agent's machine"
                )
            # Compiled here first: the problems then have the file's lines.
            loaded = loader.load(path)
            if loaded.is_compiled:
                raise CommandError(
                    f"{path} is a compiled graph, and an agent over HTTP takes only workflows as they"
                    " are written, in YAML or JSON; run the file that it was compiled from, or run"
                    " this one on that agent's machine"
                )
            graph = loaded.graph
            self._http.post_text("workflows", loaded.text, "application/yaml")
        else:
            document = self._document(f"workflows/{_quoted(workflow)}")
            graph = Graph.model_validate(document["graph"])
        body = {"input": {**values, **read_inputs(graph, texts)}, "priority": priority}
        created = self._http.post(f"workflows/{_quoted(graph.name)}/tasks", body, key=new_id())
        return str(created["id"]), graph.name

    def worker_role(self) -> str | None:
        return "daemon"

    def running_tasks(self) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)

    def pause(self, task_id: str, reason: str | None) -> CommandResult:
        return self._command(f"tasks/{task_id}/pause", {"reason": reason})

    def resume(self, task_id: str) -> CommandResult:
        return self._command(f"tasks/{task_id}/resume")

    def cancel(self, task_id: str) -> CommandResult:
        return self._command(f"tasks/{task_id}/cancel")

    def retry(self, task_id: str, *, is_latest: bool = False) -> CommandResult:
        return self._command(f"tasks/{task_id}/retry", {"latest": is_latest})

    def fork(
        self, task_id: str, from_step: str, edited: Document | None, *, is_latest: bool = False
    ) -> CommandResult:
        body = {"from_step": from_step, "input": edited or {}, "latest": is_latest}
        return self._command(f"tasks/{task_id}/fork", body, key=new_id())

    def resolve(self, task_id: str, step: str, verdict: Verdict, output: Any) -> CommandResult:
        body = {"verdict": verdict, "output": output}
        return self._command(f"tasks/{task_id}/steps/{_quoted(step)}/resolve", body)

    def signal(self, task_id: str, name: str, payload: Any) -> CommandResult:
        return self._command(f"tasks/{task_id}/signals/{_quoted(name)}", payload)

    def budget(self, task_id: str) -> Document:
        return self._document(f"tasks/{task_id}/budget")

    def load(self) -> Document:
        return self._document("load")

    def day(self) -> Document:
        return self._document("budget")

    def raise_budget(
        self,
        task_id: str,
        *,
        step: str | None,
        tokens: int | None,
        usd: float | None,
        seconds: float | None,
    ) -> CommandResult:
        body = {"step": step, "tokens": tokens, "usd": usd, "seconds": seconds}
        return self._command(f"tasks/{task_id}/budget", body)

    def conversations(self, limit: int) -> list[Document]:
        listed: list[Document] = self._http.get("conversations", limit=min(limit, _PAGE))[
            "conversations"
        ]
        return listed

    def conversation(self, name: str, after: int, limit: int) -> Document:
        path = f"conversations/{_quoted(name)}"
        document: Document = self._http.get(path, after=after, limit=min(limit, _PAGE))
        return document

    def forget_conversation(self, name: str) -> Document:
        document: Document = self._http.post(f"conversations/{_quoted(name)}/forget")
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

    def workflow(self, name: str, version: int | None) -> Document:
        return self._document(f"workflows/{_quoted(name)}/versions/{version or 'latest'}")

    def artifact(self, beginning: str) -> bytes:
        return self._http.read(f"artifacts/{beginning}").content

    def triggers(self, kind: str | None, status: str | None) -> list[Document]:
        return self._listed("triggers", _TASKS_PAGE, 2**31, kind=kind, status=status)

    def find_trigger(self, text: str, kind: str | None) -> str:
        from agent.triggers.documents import find_trigger

        removed = self.triggers(None, "removed")
        return find_trigger([*self.triggers(None, None), *removed], text, kind)

    def trigger(self, trigger_id: str) -> Document:
        return self._document(f"triggers/{_quoted(trigger_id)}")

    def firings(self, trigger_id: str, limit: int) -> list[Document]:
        path = f"triggers/{_quoted(trigger_id)}/firings"
        return self._listed("firings", _PAGE, limit, path=path)

    def change_trigger(self, trigger_id: str, request: "TriggerRequest") -> "TriggerResult":
        from agent.triggers.command_plan import TriggerResult

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
        path = f"triggers/{_quoted(trigger_id)}/{request.verb}"
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
        document: Document = self._http.post(f"triggers/{_quoted(trigger_id)}/check")
        return document

    def memories(
        self, scope: str | None, query: str | None, limit: int, *, has_forgotten: bool
    ) -> list[Document]:
        forgotten = "true" if has_forgotten else None
        if query:
            found: list[Document] = self._http.get("memories", scope=scope, q=query, limit=limit)[
                "memories"
            ]
            return found
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
        return self._document(f"state/{_quoted(scope)}/{_quoted(name)}")

    def set_state(self, scope: str, name: str, value: Any, if_version: int | None) -> "StateResult":
        body = {"value": value, "if_version": if_version}
        return self._change_state(f"state/{_quoted(scope)}/{_quoted(name)}", body)

    def delete_state(self, scope: str, name: str, if_version: int | None) -> "StateResult":
        path = f"state/{_quoted(scope)}/{_quoted(name)}/delete"
        return self._change_state(path, {"if_version": if_version})

    def _change_state(self, path: str, body: Document) -> "StateResult":
        from agent.tasks.operator.state_commands import StateResult

        answer = self._http.post(path, body)
        return StateResult(answer["changed"], answer["message"], answer["version"])

    def queues(self) -> list[Document]:
        found: list[Document] = self._http.get("work/queues")["queues"]
        return found

    def dead_letters(self, queue: str | None, code: str | None, limit: int) -> list[Document]:
        return self._listed("dead", _TASKS_PAGE, limit, path="work/dead", queue=queue, code=code)

    def requeue(self, work_id: str, not_before: str | None, reason: str | None) -> CommandResult:
        body = {"not_before": not_before, "reason": reason}
        return self._command(f"work/dead/{work_id}/requeue", body)

    def _document(self, path: str) -> Document:
        document: Document = self._http.get(path)
        return document

    def _command(self, path: str, body: Any = None, *, key: str | None = None) -> CommandResult:
        answer = self._http.post(path, body, key=key)
        return CommandResult(answer["changed"], answer["message"], answer["task_id"])

    def _ids(self, name: str, **query: Any) -> list[str]:
        return [str(row["id"]) for row in self._listed(name, _TASKS_PAGE, 5, **query)]

    def _listed(
        self, name: str, page_size: int, limit: int, /, *, path: str | None = None, **query: Any
    ) -> list[Document]:
        """Return a list, page by page; its path is its name unless another is given."""
        rows: list[Document] = []
        cursor: str | None = None
        while len(rows) < limit:
            page = self._http.get(
                path or name, limit=min(page_size, limit - len(rows)), cursor=cursor, **query
            )
            rows += page[name]
            cursor = page["next"]
            if cursor is None:
                break
        return rows


def _quoted(name: str) -> str:
    return quote(name, safe="")
