"""The client of an agent, as commands see it: local or remote.

Both clients take and return the same documents, so what a command prints and its exit code do not
depend on where the agent runs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agent.approvals.answering import AnswerVerb, Verdict
    from agent.store.read.task_list import TaskFilter
    from agent.tasks.operator.operator import CommandResult
    from agent.tasks.operator.state_commands import StateResult
    from agent.triggers.commands.command_plan import TriggerResult
    from agent.triggers.commands.command_request import TriggerRequest
    from agent.workflows.graph import Graph

Document = dict[str, Any]


class WorkerGoneError(Exception):
    """The process that ran the tasks has ended."""


class AgentClient(Protocol):
    """The operations that commands can request from an agent."""

    def find_task(self, text: str) -> str:
        """Return the id of the only task whose id equals, starts with or ends with a text."""

    def tasks(self, wanted: "TaskFilter", limit: int, before: str | None) -> Document:
        """Return the newest tasks that a filter selects, how many there are, and what follows."""

    def task(self, task_id: str) -> Document:
        """Return everything about a task."""

    def graph(self, workflow: str, version: int) -> "Graph":
        """Return the graph that tasks of a version run."""

    def calls(self, task_id: str, after: str) -> list[Document]:
        """Return the model and tool calls after a call."""

    def step(self, task_id: str, step: str) -> Document:
        """Return a step with each of its attempts."""

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
        """Return the output of steps after a piece, or the last before one, the oldest first."""

    def events(
        self, after: str | None, task_id: str | None, limit: int, *, is_newest: bool = False
    ) -> list[Document]:
        """Return events after a cursor, the first of them or the newest, the oldest first."""

    def start(
        self, workflow: str, values: Document, texts: dict[str, str], priority: str | None
    ) -> tuple[str, str]:
        """Start a task of a workflow file or name; return the task's id and the workflow's name."""

    def worker_role(self) -> str | None:
        """Return the process that runs tasks: a `daemon`, another `run` command, or None."""

    def running_tasks(self) -> AbstractContextManager[Callable[[], None]]:
        """Keep tasks running in this block, by a worker in this process if there is no other.

        Yields a check to call between two polls; it raises `WorkerGoneError` when the process that
        ran the tasks has ended.
        """

    def pause(self, task_id: str, reason: str | None) -> "CommandResult":
        """Pause a task: no new step starts."""

    def resume(self, task_id: str) -> "CommandResult":
        """Resume a paused task."""

    def cancel(self, task_id: str) -> "CommandResult":
        """Cancel a task."""

    def retry(self, task_id: str, *, is_latest: bool = False) -> "CommandResult":
        """Retry what did not succeed, in a new task."""

    def fork(
        self,
        task_id: str,
        from_step: str | None,
        edited: Document | None,
        *,
        is_latest: bool = False,
    ) -> "CommandResult":
        """Run again from a step on, or from the beginning, in a new task, with edited inputs."""

    def resolve(self, task_id: str, step: str, verdict: "Verdict", output: Any) -> "CommandResult":
        """Resolve an unknown effect."""

    def signal(self, task_id: str, name: str, payload: Any) -> "CommandResult":
        """Send a signal."""

    def budget(self, task_id: str) -> Document:
        """Return the model usage of a task, and its budgets."""

    def load(self) -> Document:
        """Return workers, slots, the queue, the steps that run for longest, and today's spend."""

    def day(self) -> Document:
        """Return the model usage of today (UTC), and the limits of a day."""

    def raise_budget(
        self,
        task_id: str,
        *,
        step: str | None,
        tokens: int | None,
        usd: float | None,
        seconds: float | None,
    ) -> "CommandResult":
        """Set the total budget of a task or of one of its steps."""

    def conversations(self, limit: int) -> list[Document]:
        """Return conversations, the one with the newest entry first."""

    def conversation(self, name: str, after: int, limit: int) -> Document:
        """Return the entries of a conversation after a number, the oldest first."""

    def forget_conversation(self, name: str) -> Document:
        """Delete the entries of a conversation; return how many they were."""

    def find_approval(self, text: str) -> str:
        """Return the id of the only approval whose id equals, starts with or ends with a text."""

    def approvals(self, *, is_all: bool, limit: int) -> list[Document]:
        """Return the open questions, or all of them."""

    def approval(self, approval_id: str) -> Document:
        """Return everything about a question."""

    def decide(
        self,
        approval_id: str,
        decision: "AnswerVerb",
        *,
        comment: str | None,
        value: Any,
        edits: Document | None,
    ) -> None:
        """Answer a question."""

    def defer(self, approval_id: str, seconds: float) -> None:
        """Be reminded of a question later."""

    def workflows(self) -> list[Document]:
        """Return every workflow, with remarks."""

    def workflow(self, name: str, version: int | None) -> Document:
        """Return a recorded version of a workflow, the newest by default."""

    def artifact(self, beginning: str) -> bytes:
        """Return the only large value whose hash starts with a text."""

    def triggers(self, kind: str | None, status: str | None) -> list[Document]:
        """Return schedules, watchers or both; removed ones only if that status is asked for."""

    def find_trigger(self, text: str, kind: str | None) -> str:
        """Return the trigger of an id, of a unique name, or the only one of a workflow."""

    def trigger(self, trigger_id: str) -> Document:
        """Return everything about a trigger."""

    def firings(self, trigger_id: str, limit: int) -> list[Document]:
        """Return the firings of the latest instants or items, the newest first."""

    def change_trigger(self, trigger_id: str, request: "TriggerRequest") -> "TriggerResult":
        """Carry out a command on a trigger."""

    def check_trigger(self, trigger_id: str) -> Document:
        """Poll a watcher once and return the runs it would start; record nothing."""

    def memories(
        self, scope: str | None, query: str | None, limit: int, *, has_forgotten: bool
    ) -> list[Document]:
        """Return the newest memories of agents, or those that match a query, the best first."""

    def memory(self, memory_id: int) -> Document:
        """Return one memory."""

    def add_memory(self, scope: str, text: str) -> Document:
        """Add a memory and return it."""

    def forget_memory(self, memory_id: int) -> Document:
        """Forget a memory and return it."""

    def state_values(self, scope: str | None, name: str | None) -> list[Document]:
        """Return the current values of state: of a scope, of a name, or all."""

    def state_value(self, scope: str, name: str) -> Document:
        """Return a value of state with its history."""

    def set_state(self, scope: str, name: str, value: Any, if_version: int | None) -> "StateResult":
        """Set a value of state."""

    def delete_state(self, scope: str, name: str, if_version: int | None) -> "StateResult":
        """Delete a value of state."""

    def queues(self) -> list[Document]:
        """Return the queues of external workers: what waits, who works, and dead letters."""

    def dead_letters(self, queue: str | None, code: str | None, limit: int) -> list[Document]:
        """Return steps of external workers whose attempts are used up, the newest first."""

    def requeue(self, work_id: str, not_before: str | None, reason: str | None) -> "CommandResult":
        """Put a dead letter back, in a retry of its task."""

    def close(self) -> None:
        """Close connections."""
