"""What the step routes take and return."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from agent.server.examples import steps as step_examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example
from agent.server.schemas.calls import CallDocument


class ResolveRequest(RequestDocument):
    """The verdict on an effect whose result is unknown."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"verdict": "done", "output": {"id": 7}}]}
    )

    verdict: Literal["done", "retry", "fail"]
    output: Any = Field(default=None, description="with `done`: the step's output")


class StepDocument(ResponseDocument):
    """One step of a task."""

    model_config = with_example(step_examples.STEP)

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
        description="why a running step is delayed: the `store` of large values that does not"
        " respond, or the function whose `thread` outlives the attempt, and the `error`"
    )
    wake_at: Instant | None
    output: Any
    error: Any
    skip_reason: str | None
    depends_on: list[str]
    item: Any
    usage: Any = Field(description="what it has used of models; null for kinds that call none")
    state: Any = Field(
        description="what it has `read` of state, as recorded at its first claim, and `written`;"
        " null: nothing"
    )
    started_at: Instant | None
    ended_at: Instant | None


class StepList(ResponseDocument):
    """The steps of a task, in order."""

    model_config = with_example(step_examples.STEPS)

    steps: list[StepDocument]


class LogPiece(ResponseDocument):
    """A piece of a step's log."""

    id: int
    step: str
    attempt: int
    at: Instant
    stream: str = Field(examples=["stdout"])
    text: str


class LogPage(ResponseDocument):
    """Log lines, the oldest first."""

    model_config = with_example(step_examples.LOGS)

    logs: list[LogPiece]
    next: int = Field(description="`after` of the next page")


class AttemptLog(ResponseDocument):
    """A piece of an attempt's log."""

    at: Instant
    stream: str = Field(examples=["stdout"])
    text: str


class StepWait(ResponseDocument):
    """What an attempt waited for."""

    on: Any
    since: Instant
    until: Instant | None
    result: Any


class StepQuestion(ResponseDocument):
    """A question that an attempt asked a person."""

    id: str
    kind: str
    status: str = Field(examples=["approved"])
    message: str
    request: Any
    asked_at: Instant
    decided_at: Instant | None
    by: str | None
    channel: str | None
    comment: str | None
    value: Any
    edits: Any


class AttemptDocument(ResponseDocument):
    """One attempt of a step."""

    attempt: int
    status: str = Field(
        description="`running`, `waiting`, `succeeded`, `failed`, `lost`, `returned`, `paused`"
        " or `skipped`"
    )
    started_at: Instant
    ended_at: Instant | None
    config: Any = Field(
        description="the configuration with its templates rendered, as the attempt got it; null"
        " where it was not rendered"
    )
    config_clipped: bool = Field(description="whether large values of `config` are cut")
    executor: dict[str, Any] | None = Field(
        description="the executor that ran it, and where; none in the agent's own process"
    )
    open_gate: str | None = Field(
        description="the condition of its approval, where that was false: no person was asked"
    )
    output: Any
    error: Any
    traceback: str | None = Field(description="the frames of the step's own code")
    approvals: list[StepQuestion]
    waits: list[StepWait]
    log: list[AttemptLog]
    log_clipped: bool = Field(description="whether earlier pieces of the log are left out")


class ItemSummary(ResponseDocument):
    """One item of a group."""

    name: str = Field(examples=["lines[3]"])
    status: str
    attempt: int
    item: Any
    error: Any


class StepChild(ResponseDocument):
    """A child task that a step has started."""

    task: str
    workflow: str
    status: str


class UnknownEffect(ResponseDocument):
    """What an ended task may have done: no result was recorded."""

    step: str
    action: str = Field(examples=["http.post"])
    call: str
    since: Instant


class StepInspection(ResponseDocument):
    """A step with each of its attempts."""

    model_config = with_example(step_examples.STEP_INSPECTION)

    task: str
    task_status: str
    workflow: str
    version: int
    step: str = Field(examples=["lines[3]"])
    kind: str
    status: str
    attempt: int
    max_attempts: int
    parallel_index: int | None
    parallel_count: int | None
    item: Any
    depends_on: list[str]
    definition: Any = Field(description="the configuration as the workflow's version has it")
    kept_from: Any = Field(description="the task and the step that a retry kept it from; or null")
    waiting_on: Any
    wake_at: Instant | None
    skip_reason: str | None
    output: Any
    error: Any
    started_at: Instant | None
    ended_at: Instant | None
    state: Any
    usage: Any
    latest_version: int | None
    changed_code: list[str]
    unknown_effects: list[UnknownEffect] = Field(
        description="what it may have done, where its task has ended; `resolve` records what became of it"
    )
    calls: list[CallDocument] = Field(
        description="the calls of all attempts, each with its `attempt`; 0 is a call that a retry took"
        " over from the task before it"
    )
    children: list[StepChild] = Field(
        description="the child tasks that it has started, the oldest first; 200 at most"
    )
    items: list[ItemSummary] = Field(description="of a group: its items, failed ones first")
    attempts: list[AttemptDocument]
