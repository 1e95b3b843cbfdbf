"""The spans of whole tasks, and the traces that lines of the log refer to.

A task may end in any process: a worker, a command, an answer to a question. The event tail has every
end, so the process that runs the tail reports the task's span. It is lost when no process runs at that
moment; the spans of the attempts are not.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from agent.config.channels import ENDS
from agent.store.db.database import Connection, Database
from agent.store.read import trace_rows
from agent.store.read.trace_rows import TracedTask
from agent.tasks.read_models.event_tail import EventTail
from agent.telemetry.spans import EndedSpan, SpanSink
from agent.telemetry.trace_context import SpanContext, TaskTrace, trace_of

_MOST_CACHED: Final = 10_000


class TaskSpans:
    """Reports tasks that have ended. Its methods run in the thread of the tail."""

    def __init__(self, database: Database, sink: SpanSink) -> None:
        self._database = database
        self._sink = sink
        self._traces: OrderedDict[str, TaskTrace] = OrderedDict()

    def subscribe(self, tail: EventTail) -> None:
        """Report every end of a task that a tail reads."""
        tail.subscribe(self.report, ENDS)

    def report(self, events: list[tuple[Any, ...]]) -> None:
        """Report the spans of the tasks whose ends are among these events."""
        ended = {str(event[0]): int(event[5]) for event in events}
        with self._database.connect("reader") as connection:
            tasks = trace_rows.traced_tasks(connection, list(ended))
        for task_id, at in ended.items():
            if task_id in tasks:
                self._sink.emit(self._span(tasks[task_id], at))

    def log_keys(self, task_ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the keys by which lines about tasks refer to their traces."""
        wanted = set(task_ids)
        missing = [task_id for task_id in wanted if task_id not in self._traces]
        if missing:
            with self._database.connect("reader") as connection:
                self._learn(connection, missing)
        traces = {task_id: self._traces[task_id] for task_id in wanted if task_id in self._traces}
        while len(self._traces) > _MOST_CACHED:
            self._traces.popitem(last=False)
        return {
            task_id: {"trace_id": trace.root.log_keys["trace_id"]}
            for task_id, trace in traces.items()
        }

    def _learn(self, connection: Connection, task_ids: list[str]) -> None:
        for task_id, task in trace_rows.traced_tasks(connection, task_ids).items():
            self._traces[task_id] = self._trace(task_id, task.trigger)

    def _trace(self, task_id: str, trigger: object) -> TaskTrace:
        return trace_of(task_id, trigger, self._sink.sample_ratio)

    def _span(self, task: TracedTask, ended_at: int) -> EndedSpan:
        trace = self._trace(task.id, task.trigger)
        links: tuple[SpanContext, ...] = ()
        if task.parent_id is not None:
            links = (self._trace(task.parent_id, task.parent_trigger).root,)
        error = task.error if task.status == "failed" and isinstance(task.error, dict) else None
        return EndedSpan(
            f"task {task.workflow}",
            trace.root,
            trace.parent,
            task.created_at,
            ended_at,
            attributes={
                "agent.task.id": task.id,
                "agent.workflow.name": task.workflow,
                "agent.workflow.version": task.version,
                "agent.task.status": task.status,
                "agent.task.trigger": _kind_of(task.trigger),
                "agent.task.parent": task.parent_id,
                "agent.task.retry_of": task.retry_of,
                "error.type": None if error is None else str(error.get("code")),
            },
            error=None if error is None else str(error.get("message")),
            links=links,
        )


def _kind_of(trigger: object) -> str | None:
    kind = trigger.get("kind") if isinstance(trigger, dict) else None
    return None if kind is None else str(kind)
