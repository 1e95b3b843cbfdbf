"""The tasks of a remote agent, over its HTTP API."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agent.cli.client.base import Document
from agent.cli.client.transport import Transport
from agent.cli.errors import CommandError
from agent.core.clock import to_iso
from agent.core.ids import new_id
from agent.tasks.operator.operator import CommandResult
from agent.tasks.read_models import task_documents
from agent.workflows.graph import Graph

if TYPE_CHECKING:
    from agent.approvals.answering import Verdict
    from agent.config.settings import Settings
    from agent.store.read.task_list import TaskFilter

_TASKS_PAGE: Final = 500
_PAGE: Final = 1000
_NEWEST: Final = 10_000


class RemoteTasks:
    """The agent at a URL: its tasks."""

    def __init__(self, url: str, settings: "Settings", *, notify: Callable[[str], None]) -> None:
        self._http = Transport(url, settings, notify=notify)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def find_task(self, text: str) -> str:
        workflow = task_documents.newest_of(text)
        if workflow is None:
            return task_documents.find_one(text, "task", lambda part: self._ids("tasks", id=part))
        newest = self._http.get("tasks", workflow=workflow or None, limit=_TASKS_PAGE)["tasks"]
        for task in newest:
            if task["parent"] is None:
                return str(task["id"])
        raise task_documents.no_task_yet(workflow)

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

    def workflow(self, name: str, version: int | None) -> Document:
        return self._document(f"workflows/{quoted(name)}/versions/{version or 'latest'}")

    def calls(self, task_id: str, after: str) -> list[Document]:
        calls: list[Document] = self._http.get(f"tasks/{task_id}/calls", after=after)["calls"]
        return calls

    def step(self, task_id: str, step: str) -> Document:
        return self._document(f"tasks/{task_id}/steps/{quoted(step)}")

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
        of = f"tasks/{task_id}" if step is None else f"tasks/{task_id}/steps/{quoted(step)}"
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
            document = self._document(f"workflows/{quoted(workflow)}")
            graph = Graph.model_validate(document["graph"])
        body = {"input": {**values, **read_inputs(graph, texts)}, "priority": priority}
        created = self._http.post(f"workflows/{quoted(graph.name)}/tasks", body, key=new_id())
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
        self,
        task_id: str,
        from_step: str | None,
        edited: Document | None,
        *,
        is_latest: bool = False,
    ) -> CommandResult:
        body = {"from_step": from_step, "input": edited or {}, "latest": is_latest}
        return self._command(f"tasks/{task_id}/fork", body, key=new_id())

    def resolve(self, task_id: str, step: str, verdict: "Verdict", output: Any) -> CommandResult:
        body = {"verdict": verdict, "output": output}
        return self._command(f"tasks/{task_id}/steps/{quoted(step)}/resolve", body)

    def signal(self, task_id: str, name: str, payload: Any) -> CommandResult:
        return self._command(f"tasks/{task_id}/signals/{quoted(name)}", payload)

    def budget(self, task_id: str) -> Document:
        return self._document(f"tasks/{task_id}/budget")

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


def quoted(name: str) -> str:
    """Return a name as a part of a path."""
    return quote(name, safe="")
