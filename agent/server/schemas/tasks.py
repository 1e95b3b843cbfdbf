"""What the task routes take and return."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from agent.server import examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example
from agent.server.schemas.steps import StepDocument


class NewTask(RequestDocument):
    """A task to start."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": {"max_amount": 250}, "priority": "high"}]}
    )

    input: dict[str, Any] = Field(default_factory=dict, description="the workflow's inputs")
    priority: Literal["high", "normal", "low"] | None = Field(
        default=None, description="default: the workflow's own"
    )


class CreatedTask(ResponseDocument):
    """The created task; the same for every repeated request under its key."""

    model_config = with_example(examples.CREATED)

    id: str = Field(examples=[examples.TASK_ID])
    workflow: str = Field(examples=["invoice-triage"])
    url: str = Field(examples=[f"/api/v1/tasks/{examples.TASK_ID}"])


class Reason(RequestDocument):
    """The reason for a command; it is recorded with the task."""

    reason: str | None = Field(default=None, max_length=1000, examples=["waiting for the bank"])


class Fork(RequestDocument):
    """The step to run again from, and the changed inputs."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from_step": "read", "input": {"max_amount": 900}}]}
    )

    from_step: str = Field(max_length=200)
    input: dict[str, Any] = Field(default_factory=dict, description="only the changed inputs")


class CommandAnswer(ResponseDocument):
    """The result of a command; `task_id` is the new task if it created one."""

    model_config = with_example(examples.COMMAND)

    changed: bool
    message: str = Field(examples=["paused"])
    task_id: str = Field(examples=[examples.TASK_ID])


class TaskSummary(ResponseDocument):
    """A task in a list."""

    model_config = with_example(examples.SUMMARY)

    id: str = Field(examples=[examples.TASK_ID])
    workflow: str = Field(examples=["invoice-triage"])
    version: int
    status: str = Field(examples=["running"])
    activity: str = Field(
        description="the status; `waiting` for a running task whose steps only wait",
        examples=["waiting"],
    )
    priority: str = Field(examples=["normal"])
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    error: Any
    pause_reason: str | None
    pause_kind: str | None = Field(examples=["budget"])
    pause_command: str | None = Field(examples=["budget 4f6a1c22 --tokens N"])


class TaskDocument(TaskSummary):
    """Everything about a task: what `agent show --json` prints."""

    model_config = with_example(examples.TASK)

    waiting_on: Any = Field(examples=[[{"step": "approve", "signal": "go"}]])
    current_step: str | None
    input: Any
    output: Any
    trigger: Any
    deadline: Instant | None
    next_wake_time: Instant | None
    parent: str | None
    retry_of: str | None
    forked_from: str | None
    origin: str = Field(description="the first task of its line of retries")
    chat_origin: Any = Field(
        description="where in a chat it was started, as channel, recipient and thread; or null"
    )
    children: list[str]
    usage: Any = Field(description="what its own steps have used of models")
    steps: list[StepDocument]


class TaskPage(ResponseDocument):
    """Tasks, the newest first."""

    model_config = with_example(examples.TASKS)

    tasks: list[TaskSummary]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")
