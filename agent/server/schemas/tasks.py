"""What the task routes take and return."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from agent.server.examples import tasks as task_examples
from agent.server.examples.identities import TASK_ID
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example
from agent.server.schemas.steps import StepDocument, UnknownEffect
from agent.tasks.read_models import listed_waits


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

    model_config = with_example(task_examples.CREATED)

    id: str = Field(examples=[TASK_ID])
    workflow: str = Field(examples=["invoice-triage"])
    url: str = Field(examples=[f"/api/v1/tasks/{TASK_ID}"])


class ReasonRequest(RequestDocument):
    """The reason for a command; it is recorded with the task."""

    reason: str | None = Field(default=None, max_length=1000, examples=["waiting for the bank"])


class RetryRequest(RequestDocument):
    """How a task is retried."""

    latest: bool = Field(
        default=False,
        description="go on with the newest version of the workflow, where the kept steps fit it",
    )


class ForkRequest(RequestDocument):
    """The step to run again from, if not from the beginning, and the changed inputs."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from_step": "read", "input": {"max_amount": 900}}]}
    )

    from_step: str | None = Field(
        default=None, max_length=200, description="null: from the beginning, with all steps"
    )
    input: dict[str, Any] = Field(default_factory=dict, description="only the changed inputs")
    latest: bool = Field(default=False, description="go on with the newest version of the workflow")


class CommandAnswer(ResponseDocument):
    """The result of a command; `task_id` is the new task if it created one."""

    model_config = with_example(task_examples.COMMAND)

    changed: bool
    message: str = Field(examples=["paused"])
    task_id: str = Field(examples=[TASK_ID])


class RetriedAs(ResponseDocument):
    """The task that retried another one."""

    id: str = Field(examples=[TASK_ID])
    status: str = Field(examples=["succeeded"])


class TaskSummary(ResponseDocument):
    """A task in a list."""

    model_config = with_example(task_examples.SUMMARY)

    id: str = Field(examples=[TASK_ID])
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
    retried_as: RetriedAs | None = Field(description="the last of its retries, and theirs")
    pause_reason: str | None
    pause_kind: str | None = Field(examples=["budget"])
    pause_command: str | None = Field(examples=["budget 4f6a1c22 --tokens N"])


class TaskDocument(TaskSummary):
    """Everything about a task: what `agent show --json` prints."""

    model_config = with_example(task_examples.TASK)

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
    unknown_effects: list[UnknownEffect] = Field(
        description="what its steps may have done, where it failed or was canceled: no result was recorded."
        " `resolve` records what became of it; a retry of the task asks"
    )
    usage: Any = Field(description="what its own steps have used of models")
    latest_version: int | None = Field(
        description="the newest version of its workflow; null: the workflow was removed"
    )
    changed_code: list[str] = Field(
        description="steps whose code differs from what it was when the version was recorded"
    )
    steps: list[StepDocument]


class Need(ResponseDocument):
    """What a task needs from outside to go on."""

    what: Literal["answer", "signal", "resume", "resolve"]
    task: str = Field(description="the task, or the child of it, that needs it")
    step: str | None
    approval: str | None = Field(description="the question, for `answer`")
    signal: str | None = Field(description="its name, for `signal`")
    message: str | None


class TaskResult(ResponseDocument):
    """How a task ended, or what it needs to go on."""

    model_config = with_example(task_examples.RESULT)

    id: str = Field(examples=[TASK_ID])
    workflow: str = Field(examples=["invoice-triage"])
    status: str = Field(examples=["running"])
    activity: str = Field(examples=["waiting"])
    is_over: bool = Field(description="whether it has succeeded, failed or been canceled")
    output: Any
    error: Any
    needs: list[Need] = Field(description="what only a person or a program outside can do for it")
    waiting_on: Any = Field(description="what each of its steps waits on")


class ListedTask(TaskSummary):
    """A task in a list, with what its steps wait for."""

    model_config = with_example(task_examples.LISTED)

    input_preview: str = Field(description="the beginning of the input, as one line")
    trigger: Any = Field(description="what started it: `kind`, and the schedule or watcher as `id`")
    parent: str | None
    waiting_for: Any = Field(
        description="what its steps wait for, the most urgent first; `what` is one of "
        + ", ".join(f"`{what}`" for what in listed_waits.WHAT)
    )
    waits: int = Field(description="steps that only a person or a program can wake")
    signal: str | None = Field(description="the signal, if it waits for nothing else from outside")
    delay: Any = Field(
        description="the artifact store or the thread that a running step waits for, or null"
    )


class SearchExtent(ResponseDocument):
    """How far a search got."""

    tasks: int
    back_to: Instant | None = Field(description="when the oldest of them was created")


class TaskPage(ResponseDocument):
    """Tasks, the newest first."""

    model_config = with_example(task_examples.TASKS)

    tasks: list[ListedTask]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")
    total: int | None = Field(
        description="how many there are, with `total=true`; 10,000 may be more; null for a search"
    )
    searched: SearchExtent | None = Field(description="with `search`: how far this page looked")
