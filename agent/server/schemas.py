"""The documents that the API takes and gives, as its OpenAPI description shows them.

What it gives is written from the database's own documents without passing through these models;
a test holds the two equal.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.approvals.answering import MAX_DEFER_SECONDS
from agent.server import examples

Instant = Annotated[str, Field(description="ISO 8601 in UTC", examples=[examples.AT])]


def _like(example: Any) -> ConfigDict:
    return ConfigDict(extra="allow", json_schema_extra={"examples": [example]})


class _Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ProblemDocument(_Shape):
    """What was wrong (RFC 9457)."""

    model_config = _like(examples.PROBLEM)

    type: str = Field(examples=["urn:agent:problem:refused"])
    title: str = Field(examples=["Not allowed in this state"])
    status: int = Field(examples=[409])
    detail: str = Field(examples=["nothing to pause: the task succeeded"])
    errors: list[Any] | None = Field(
        default=None, description="all that is wrong, where it applies"
    )


class NewTask(_Asked):
    """A task to start."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": {"max_amount": 250}, "priority": "high"}]}
    )

    input: dict[str, Any] = Field(default_factory=dict, description="the workflow's inputs")
    priority: Literal["high", "normal", "low"] | None = Field(
        default=None, description="default: the workflow's own"
    )


class CreatedTask(_Shape):
    """A task that exists; the same for every repetition of the request under its key."""

    model_config = _like(examples.CREATED)

    id: str = Field(examples=[examples.TASK_ID])
    workflow: str = Field(examples=["invoice-triage"])
    url: str = Field(examples=[f"/api/v1/tasks/{examples.TASK_ID}"])


class Reason(_Asked):
    """Why, for whoever looks at the task later."""

    reason: str | None = Field(default=None, max_length=1000, examples=["waiting for the bank"])


class Fork(_Asked):
    """From where to run again, and with which inputs changed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from_step": "read", "input": {"max_amount": 900}}]}
    )

    from_step: str = Field(max_length=200)
    input: dict[str, Any] = Field(default_factory=dict, description="only what changes")


class Resolution(_Asked):
    """What became of an effect whose outcome is unknown."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"verdict": "done", "output": {"id": 7}}]}
    )

    verdict: Literal["done", "retry", "fail"]
    output: Any = Field(default=None, description="with `done`: the step's output")


class CommandAnswer(_Shape):
    """What a command did; `task_id` is the new task where it made one."""

    model_config = _like(examples.COMMAND)

    changed: bool
    message: str = Field(examples=["paused"])
    task_id: str = Field(examples=[examples.TASK_ID])


class StepDocument(_Shape):
    """One step of a task."""

    model_config = _like(examples.STEP)

    name: str = Field(examples=["lines[3]"])
    index: int
    parallel_index: int | None
    parallel_count: int | None
    kind: str = Field(examples=["http"])
    status: str = Field(examples=["succeeded"])
    attempt: int
    max_attempts: int
    waiting_on: Any
    delay: Any = Field(
        description="what it waits for although it is running: a `store` of large values that does"
        " not answer, and its `error`"
    )
    wake_at: Instant | None
    output: Any
    error: Any
    skip_reason: str | None
    depends_on: list[str]
    item: Any
    usage: Any = Field(description="what it has used of models; null for kinds that ask none")
    started_at: Instant | None
    ended_at: Instant | None


class TaskSummary(_Shape):
    """A task in a list."""

    model_config = _like(examples.SUMMARY)

    id: str = Field(examples=[examples.TASK_ID])
    workflow: str = Field(examples=["invoice-triage"])
    version: int
    status: str = Field(examples=["running"])
    activity: str = Field(
        description="The status, where `waiting` is told from `running`.", examples=["waiting"]
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

    model_config = _like(examples.TASK)

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
    origin: str
    children: list[str]
    usage: Any = Field(description="what its own steps have used of models")
    steps: list[StepDocument]


class TaskPage(_Shape):
    """Tasks, the newest first."""

    model_config = _like(examples.TASKS)

    tasks: list[TaskSummary]
    next: str | None = Field(description="`cursor` of the next page; null on the last one")


class StepList(_Shape):
    """The steps of a task, in order."""

    model_config = _like(examples.STEPS)

    steps: list[StepDocument]


class CallDocument(_Shape):
    """One call of a step: of a model, of one of its tools, or of anything else outside."""

    id: str
    step: str
    number: int = Field(description="its place among the step's calls; later attempts repeat it")
    attempt: int
    action: str = Field(examples=["model"])
    status: str = Field(examples=["succeeded"])
    at: Instant
    request: Any
    response: Any
    error: Any
    model: str | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    latency_ms: int | None
    stop_reason: str | None
    request_id: str | None


class CallList(_Shape):
    """Calls of models and of their tools, in their order."""

    model_config = _like(examples.CALLS)

    calls: list[CallDocument]


class Transcript(_Shape):
    """All calls of a step in their order: of an agent, its whole conversation."""

    model_config = _like(examples.TRANSCRIPT)

    task: str
    step: str
    kind: str
    status: str
    attempt: int
    calls: list[CallDocument]
    usage: Any


class LogPiece(_Shape):
    """Something that a step wrote."""

    id: int
    step: str
    attempt: int
    at: Instant
    stream: str = Field(examples=["stdout"])
    text: str


class LogPage(_Shape):
    """What a step wrote, the oldest first."""

    model_config = _like(examples.LOGS)

    logs: list[LogPiece]
    next: int = Field(description="`after` of the next page")


class EventDocument(_Shape):
    """One row of the append-only log."""

    model_config = _like(examples.EVENT)

    cursor: str = Field(examples=["0-1204"])
    task: str | None = Field(examples=[examples.TASK_ID])
    seq: int | None
    type: str = Field(examples=["step.succeeded"])
    step: str | None = Field(examples=["fetch"])
    attempt: int | None
    at: Instant
    data: Any


class EventPage(_Shape):
    """Events in the order of their commits."""

    model_config = _like(examples.EVENTS)

    events: list[EventDocument]
    cursor: str | None = Field(description="`after` of the next page")


class WorkflowSummary(_Shape):
    """A workflow in a list."""

    model_config = _like(examples.WORKFLOW_SUMMARY)

    name: str = Field(examples=["invoice-triage"])
    version: int
    description: str | None
    file: str | None = Field(description="where it lives; such a one is read-only here")
    tasks: int = Field(description="started from this version")
    created_at: Instant
    removed_at: Instant | None


class WorkflowList(_Shape):
    """The workflows that can be started."""

    model_config = _like(examples.WORKFLOWS)

    workflows: list[WorkflowSummary]


class WorkflowDocument(WorkflowSummary):
    """A workflow as it is on record."""

    model_config = _like(examples.WORKFLOW)

    graph: Any = Field(description="compiled")
    source: str | None = Field(description="as it was written")
    versions: list[Any]


class Approving(_Asked):
    """A yes, with changes to what the question lets be changed."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"comment": "fine", "edits": {"argv": ["pay", "12"]}}]}
    )

    comment: str | None = Field(default=None, max_length=10_000)
    edits: dict[str, Any] = Field(default_factory=dict, description="by key, as in `editable`")


class Denying(_Asked):
    """A no."""

    reason: str | None = Field(default=None, max_length=10_000, examples=["not this month"])


class Answering(_Asked):
    """A value; for an unknown effect `done`, `retry` or `fail`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "blue"}]})

    value: Any
    comment: str | None = Field(default=None, max_length=10_000)


class Deferring(_Asked):
    """When to be reminded."""

    seconds: float = Field(gt=0, le=MAX_DEFER_SECONDS, examples=[3600])


class ApprovalAnswer(_Shape):
    """What an answer did."""

    model_config = _like(examples.ANSWERED)

    approval: str = Field(examples=[examples.TASK_ID])
    task: str = Field(examples=[examples.TASK_ID])
    step: str = Field(examples=["pay"])
    status: str = Field(examples=["approved"])
    message: str


class ApprovalDocument(_Shape):
    """A question, what will be done in full, and what was decided."""

    model_config = _like(examples.APPROVAL)

    id: str = Field(examples=[examples.TASK_ID])
    kind: str = Field(examples=["approval"])
    status: str = Field(examples=["pending"])
    task: str = Field(examples=[examples.TASK_ID])
    task_status: str = Field(examples=["running"])
    workflow: str = Field(examples=["invoice-triage"])
    step: str = Field(examples=["pay"])
    attempt: int
    message: str | None
    request: Any
    request_hash: str
    choices: list[Any] | None
    value_schema: Any = Field(alias="schema")
    editable: list[str]
    who: list[str]
    created_at: Instant
    expires_at: Instant | None
    on_expiry: str = Field(examples=["fail"])
    remind_at: Instant | None
    renews: str | None
    decision: Any


class ApprovalList(_Shape):
    """Questions to people."""

    model_config = _like(examples.APPROVALS)

    approvals: list[ApprovalDocument]
    next: str | None = Field(description="`cursor` of the next page; null on the last one")


class NewBudget(_Asked):
    """What a task, or one of its steps, may use in all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"usd": 2.5, "tokens": 400000}]})

    step: str | None = Field(default=None, max_length=200, description="the step's own budget")
    tokens: int | None = Field(default=None, ge=1, lt=2**53)
    usd: float | None = Field(default=None, ge=0.000001, le=10**9)
    seconds: float | None = Field(
        default=None, gt=0, le=10**10, description="since the task's start"
    )


class BudgetDocument(_Shape):
    """What a task's own calls of models used, and its budgets with what is taken of each."""

    model_config = _like(examples.BUDGET)

    task: str = Field(examples=[examples.TASK_ID])
    calls: int
    tokens_in: int
    tokens_out: int
    usd: float
    usd_of_unknown_calls: float
    budgets: list[Any]


class DayDocument(_Shape):
    """What all tasks together have used of models on a day, and what it allows; null: no limit."""

    model_config = _like(examples.DAY)

    day: str
    tokens: int
    tokens_limit: int | None
    usd: float
    usd_limit: float | None
    seconds: float
    seconds_limit: float | None


class HookAnswer(_Shape):
    """A webhook's delivery was taken; the same task for every repetition of it."""

    model_config = _like(examples.HOOK)

    task: str | None = Field(examples=[examples.TASK_ID])


class Health(_Shape):
    """Whether the agent is well."""

    model_config = _like({"status": "ok"})

    status: str = Field(
        examples=["ok"], description="ok, degraded, starting, stopping, unavailable"
    )
    because: list[str] | None = Field(
        default=None, description="what does not work: database, artifacts"
    )
