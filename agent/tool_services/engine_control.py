"""The service behind the tool `engine`: tasks, workflows, schedules and watchers.

Documents are short: a model reads them. Nothing here answers an approval, sends a signal, resolves a
call or raises a budget, and what is shown of an approval is only that a step waits for a person.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from agent.core.chat_origin import read_origin
from agent.core.clock import Clock
from agent.core.state_machine import STEP_ENDED, StepStatus
from agent.core.waits import Approval, Child, Signal, Timer, UnknownCall, Work
from agent.steps.attempt.services import AgentStep
from agent.store.db.database import Connection, Database
from agent.store.engine import task_rows, workflow_versions
from agent.store.read.task_list import TaskFilter
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.agent_call import AgentCall
from agent.tasks.operator.operator import CommandResult, Operator
from agent.tasks.read_models import person_waits, task_documents, task_list
from agent.tasks.read_models.task_documents import find_task, retried_words, short_id
from agent.tasks.submission import new_submission, recorded_workflow
from agent.tool_services.tool_errors import tool_errors
from agent.triggers import documents
from agent.workflows.compile.inputs import inputs_schema
from agent.workflows.graph import Graph

MAX_STARTS_ABOVE: Final = 5
"""How many agents may start one another in a row: the task of the last one starts none."""
MAX_TASKS: Final = 50
MAX_WORKFLOWS: Final = 100
MAX_TRIGGERS: Final = 100
_MAX_STEPS: Final = 30
_MAX_VALUE_CHARS: Final = 2_000
_MAX_TEXT_CHARS: Final = 300

Document = dict[str, Any]
Allowed = Sequence[str] | None
"""The workflows that a tool may concern; None is every workflow."""


class EngineControl:
    """The engine as the tool `engine` sees it; every function blocks."""

    def __init__(self, database: Database, clock: Clock, steps_per_task: int) -> None:
        self._database = database
        self._clock = clock
        self._steps_per_task = steps_per_task
        self._operator = Operator(database, clock)

    def list_tasks(
        self, allowed: Allowed, status: str | None, workflow: str | None, limit: int
    ) -> Document:
        """Return the newest tasks."""
        limit = max(1, min(limit, MAX_TASKS))
        with tool_errors(), self._reading() as connection:
            names = _chosen(allowed, workflow)
            tasks: list[Document] = []
            for name in names:
                wanted = TaskFilter(activities=(status,) if status else (), workflow=name)
                tasks += task_list.list_tasks(connection, wanted, limit + 1)
        tasks.sort(key=lambda task: str(task["id"]), reverse=True)
        return _bounded("tasks", [_task_line(task) for task in tasks], limit)

    def show_task(self, allowed: Allowed, task: str) -> Document:
        """Return a task's state, or its end."""
        with tool_errors(), self._reading() as connection:
            task_id = _find(connection, allowed, task)
            return _task_document(task_documents.task_document(connection, task_id))

    def list_workflows(self, allowed: Allowed) -> Document:
        """Return the workflows that can be started, each with its inputs as a schema."""
        with tool_errors(), self._reading() as connection:
            versions = [
                version
                for version in workflow_versions.latest_versions(connection)
                if version.removed_at is None and (allowed is None or version.name in allowed)
            ]
            shown = [
                _workflow_line(connection, version.name, version.number)
                for version in versions[: MAX_WORKFLOWS + 1]
            ]
        return _bounded("workflows", shown, MAX_WORKFLOWS)

    def list_triggers(self, allowed: Allowed, kind: str) -> Document:
        """Return schedules (`schedule`) or watchers (`watch`)."""
        with tool_errors(), self._reading() as connection:
            triggers = documents.trigger_list(connection, kind, now=self._clock.now())
        lines = [
            _trigger_line(trigger)
            for trigger in triggers
            if allowed is None or trigger["workflow"] in allowed
        ]
        return _bounded("schedules" if kind == "schedule" else "watchers", lines, MAX_TRIGGERS)

    def start(
        self, allowed: Allowed, workflow: str, inputs: Mapping[str, Any], by: AgentStep
    ) -> Document:
        """Start a task that lives on its own; a repeated call returns the task that it started."""
        with tool_errors():
            with self._reading() as connection:
                existing = task_rows.task_by_dedupe_key(connection, _dedupe_key(by))
                if existing is not None:
                    return {"task": short_id(existing), "workflow": workflow, "started": True}
                _chosen(allowed, workflow)
                recorded = recorded_workflow(connection, workflow)
                if recorded is None:
                    raise NotFoundError(f"there is no workflow {workflow!r}")
                depth = task_rows.starts_above(connection, by.task_id) + 1
                origin = task_rows.chat_origin_of(connection, by.task_id)
            if depth > MAX_STARTS_ABOVE:
                raise RefusedError(
                    f"agents have started one another {MAX_STARTS_ABOVE} times in a row up to this"
                    " task, which is the most: it cannot start another task"
                )
            submission = new_submission(
                recorded,
                steps_per_task=self._steps_per_task,
                trigger={"kind": "agent", "task": by.task_id, "step": by.step, "depth": depth},
                values=inputs,
                dedupe_key=_dedupe_key(by),
                chat_origin=read_origin(origin),
            )
            task_id = self._operator.submit(submission)
        return {"task": short_id(task_id), "workflow": workflow, "started": True}

    def pause(self, allowed: Allowed, task: str, reason: str | None, by: AgentStep) -> Document:
        """Pause a task."""
        with tool_errors():
            task_id = self._other_task(allowed, task, by)
            return _result(self._operator.pause(task_id, _signed(reason, by), _call(by)))

    def resume(self, allowed: Allowed, task: str, by: AgentStep) -> Document:
        """Resume a paused task; one that a budget has paused is for a person."""
        with tool_errors():
            task_id = self._other_task(allowed, task, by)
            with self._reading() as connection:
                if task_documents.task_document(connection, task_id)["pause_kind"] == "budget":
                    raise RefusedError("its budget is used up: only a person can raise it")
            return _result(self._operator.resume(task_id, _call(by)))

    def cancel(self, allowed: Allowed, task: str, reason: str | None, by: AgentStep) -> Document:
        """Cancel a task."""
        with tool_errors():
            task_id = self._other_task(allowed, task, by)
            return _result(self._operator.cancel(task_id, _signed(reason, by), _call(by)))

    def _other_task(self, allowed: Allowed, task: str, by: AgentStep) -> str:
        with self._reading() as connection:
            task_id = _find(connection, allowed, task)
        if task_id == by.task_id:
            raise RefusedError("a task cannot control itself: a person can")
        return task_id

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._database.connect("reader") as connection, connection.snapshot():
            yield connection


def _chosen(allowed: Allowed, workflow: str | None) -> list[str | None]:
    """Return the workflows to read: the named one, or those that are allowed; None is every one."""
    if workflow is not None:
        if allowed is not None and workflow not in allowed:
            raise RefusedError(
                f"the workflow {workflow!r} is not among the allowed ones: {', '.join(allowed)}"
            )
        return [workflow]
    return [None] if allowed is None else list(allowed)


def _find(connection: Connection, allowed: Allowed, text: str) -> str:
    """Return the task that a text means; one of another workflow than the allowed does not exist."""
    task_id = find_task(connection, text)
    if allowed is not None and task_rows.workflow_of(connection, task_id)[0] not in allowed:
        raise NotFoundError(f"there is no task {text} of the allowed workflows")
    return task_id


def _dedupe_key(by: AgentStep) -> str:
    return f"agent:{by.call_key}"


def _call(by: AgentStep) -> AgentCall:
    return AgentCall(by.task_id, by.step, by.call_key)


def _signed(reason: str | None, by: AgentStep) -> str:
    """Return a reason that says who gave it: people read it."""
    text = f"by the agent of step {by.step} of task {short_id(by.task_id)}"
    return f"{_cut(reason, _MAX_TEXT_CHARS)} ({text})" if reason else text


def _result(result: CommandResult) -> Document:
    return {"task": short_id(result.task_id), "result": result.message}


def _bounded(name: str, lines: list[Document], limit: int) -> Document:
    """Return a list for a model, with a remark where there are more."""
    shown: Document = {name: lines[:limit]}
    return shown if len(lines) <= limit else {**shown, "more": f"only {limit} are shown"}


def _task_line(task: Document) -> Document:
    line = {
        "task": short_id(task["id"]),
        "workflow": task["workflow"],
        "status": task["activity"],
        "created_at": task["created_at"],
        "ended_at": task["ended_at"],
        "paused": task["pause_reason"],
        "retried": retried_words(task) or None,
        "error": _message(task["error"]),
    }
    return {name: value for name, value in line.items() if value is not None}


def _task_document(task: Document) -> Document:
    steps = task["steps"]
    # Open and failed steps matter most.
    steps = sorted(steps, key=lambda step: step["status"] in STEP_ENDED and not step["error"])
    shown = [_step_line(step) for step in steps[:_MAX_STEPS]]
    document = {
        **_task_line(task),
        "trigger": task["trigger"],
        "input": _short(task["input"]),
        "output": _short(task["output"]),
        "steps": shown,
    }
    if len(steps) > _MAX_STEPS:
        document["more"] = f"{len(steps) - _MAX_STEPS} more steps"
    return {name: value for name, value in document.items() if value is not None}


def _step_line(step: Document) -> Document:
    line = {
        "step": step["name"],
        "kind": step["kind"],
        "status": step["status"],
        "waits_for": _waits_for(step),
        "error": _message(step["error"]),
    }
    return {name: value for name, value in line.items() if value is not None}


def _waits_for(step: Document) -> str | None:
    """Describe the wait of a step, without the id of a question."""
    if step["status"] != StepStatus.WAITING:
        return None
    match person_waits.wait_of(step):
        case Approval() | UnknownCall():
            return "a person's answer"
        case Signal(name=name):
            return f"the signal {name}"
        case Work(approval_id=None):
            return "a worker outside"
        case Work():
            return "a person's answer"
        case Child():
            return "another task"
        case Timer():
            return f"a time: {step['wake_at']}"
    return "something"


def _workflow_line(connection: Connection, name: str, number: int) -> Document:
    texts = workflow_versions.texts_of(connection, name, number)
    assert texts is not None, name
    graph = Graph.model_validate_json(texts[0])
    line = {
        "workflow": name,
        "description": _cut(graph.description, _MAX_TEXT_CHARS),
        "inputs": inputs_schema(graph),
    }
    return {key: value for key, value in line.items() if value is not None}


def _trigger_line(trigger: Document) -> Document:
    recent = trigger["recent"][:1]
    line = {
        "id": trigger["id"],
        "when": trigger["when"],
        "status": trigger["status"],
        "next_at": trigger["next_at"],
        "problem": trigger["problem"] or trigger.get("last_error"),
        "last": f"{recent[0]['status']} at {recent[0]['recorded_at']}" if recent else None,
    }
    return {name: value for name, value in line.items() if value is not None}


def _message(error: Any) -> str | None:
    text = error.get("message") if isinstance(error, dict) else error
    return _cut(str(text), _MAX_TEXT_CHARS) if text is not None else None


def _short(value: Any) -> Any:
    """Return a value, or the beginning of its text if that is long."""
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _MAX_VALUE_CHARS else _cut(text, _MAX_VALUE_CHARS)


def _cut(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else f"{text[:most]}…"
