"""The agent that commands talk to: through its database here, or over HTTP elsewhere.

Commands know this protocol alone. They get and give the same documents either way, so what they
print and how they end does not depend on where the agent is.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from agent.approvals.answering import AnswerVerb
    from agent.tasks.operator.operator import Answer, Verdict
    from agent.workflows.graph import Graph

Document = dict[str, Any]


class WorkerGoneError(Exception):
    """The process that ran the tasks has ended."""


class AgentClient(Protocol):
    """What commands ask of an agent."""

    def find_task(self, text: str) -> str:
        """Return the one task whose id is, begins with, or ends with a text."""

    def tasks(
        self, status: str | None, activity: str | None, workflow: str | None, limit: int
    ) -> list[Document]:
        """Return the newest tasks, each as a short document."""

    def task(self, task_id: str) -> Document:
        """Return everything about a task."""

    def graph(self, workflow: str, version: int) -> "Graph":
        """Return the graph that tasks of a version run."""

    def calls(self, task_id: str, after: str) -> list[Document]:
        """Return calls of models and of their tools, after one of them."""

    def transcript(self, task_id: str, step: str) -> Document:
        """Return all that a step asked for and was given."""

    def logs(
        self, task_id: str, step: str | None, attempt: int | None, after: int, limit: int
    ) -> list[Document]:
        """Return what steps wrote after a piece, the oldest first."""

    def events(self, after: str | None, task_id: str | None, limit: int) -> list[Document]:
        """Return events after a cursor, the oldest first."""

    def start(
        self, workflow: str, values: Document, texts: dict[str, str], priority: str | None
    ) -> tuple[str, str]:
        """Start a workflow, by its file or its name; return the task and the workflow's name."""

    def worker_role(self) -> str | None:
        """Return what runs tasks: a `daemon`, another `run` command, or None."""

    def running_tasks(self) -> AbstractContextManager[Callable[[], None]]:
        """Keep tasks running in this block, by a worker in this process if there is no other.

        Yields a check to call between two polls; it raises `WorkerGoneError` when the process that
        ran the tasks has ended.
        """

    def pause(self, task_id: str, reason: str | None) -> "Answer":
        """Let nothing new of a task start."""

    def resume(self, task_id: str) -> "Answer":
        """Let a paused task go on."""

    def cancel(self, task_id: str) -> "Answer":
        """End a task now."""

    def retry(self, task_id: str) -> "Answer":
        """Run again what of a task has not succeeded."""

    def fork(self, task_id: str, from_step: str, edited: Document | None) -> "Answer":
        """Run again from a step on, with edited inputs."""

    def resolve(self, task_id: str, step: str, verdict: "Verdict", output: Any) -> "Answer":
        """Say what became of an effect whose outcome is unknown."""

    def signal(self, task_id: str, name: str, payload: Any) -> "Answer":
        """Send a signal."""

    def budget(self, task_id: str) -> Document:
        """Return what a task has used of models, and its budgets."""

    def day(self) -> Document:
        """Return what all tasks have used of models today (UTC), and what a day allows."""

    def raise_budget(
        self,
        task_id: str,
        *,
        step: str | None,
        tokens: int | None,
        usd: float | None,
        seconds: float | None,
    ) -> "Answer":
        """Set what a task, or one of its steps, may use in all."""

    def find_approval(self, text: str) -> str:
        """Return the one approval whose id is, begins with, or ends with a text."""

    def approvals(self, *, is_all: bool, limit: int) -> list[Document]:
        """Return what waits for an answer, or all there ever was."""

    def approval(self, approval_id: str) -> Document:
        """Return everything about a question."""

    def decide(
        self,
        approval_id: str,
        said: "AnswerVerb",
        *,
        comment: str | None,
        value: Any,
        edits: Document | None,
    ) -> None:
        """Answer a question."""

    def defer(self, approval_id: str, seconds: float) -> None:
        """Leave a question open and be reminded of it later."""

    def workflows(self) -> list[Document]:
        """Return every workflow, with remarks on what to know of it."""

    def workflow(self, name: str, version: int | None) -> Document:
        """Return one version of a workflow on record, the newest unless another is named."""

    def artifact(self, beginning: str) -> bytes:
        """Return the one large value whose hash begins with a text."""

    def close(self) -> None:
        """Let go of what was opened."""
