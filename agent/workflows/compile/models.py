"""The keys of a workflow file and of its steps, as models.

The kinds' own keys are not here: they come from the registry. `step_compiler` converts values that the
compiled graph contains in another form (durations, shorthand).
"""

from typing import Annotated, Any, Final, Literal

from agent.core.quick_classes.quick_fields import AfterValidator, ConfigDict, Field, WithJsonSchema
from agent.core.quick_classes.quick_models import BaseModel
from agent.core.state_names import MAX_NAMES, find_name_problem
from agent.workflows.compile.executor_keys import Executor
from agent.workflows.compile.field_types import (
    AttemptTimeout,
    Duration,
    PositiveDuration,
    one_or_more,
)
from agent.workflows.compile.input_keys import InputKeys
from agent.workflows.compile.triggers import TriggerKeys
from agent.workflows.graph import (
    MAX_ITEMS,
    MAX_NAME_CHARS,
    MAX_STEPS,
    NAME_PATTERN,
    WORKFLOW_NAME_PATTERN,
    OnUnknown,
)

Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=MAX_NAME_CHARS)]
MAX_SET_NAMES: Final = 50
"""How many values one step may write."""


def _check_state_name(name: str) -> str:
    problem = find_name_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


def _refuse_twins(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is named twice")
    return names


StateName = Annotated[str, AfterValidator(_check_state_name)]


def _editors_see(*types: str) -> WithJsonSchema:
    """Name the types of a key for editors; the compiler explains errors better than a union would."""
    return WithJsonSchema({"type": list(types)})


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RetryKeys(_Keys):
    """How often and how soon a step is retried."""

    max_attempts: int = Field(default=3, ge=1, le=1000, description="the first one included")
    delay: Duration = Field(default=2.0, le=86_400, description="before the second attempt")
    factor: float = Field(default=2.0, ge=1, le=100, description="what each delay is multiplied by")
    max_delay: Duration = Field(default=300.0, le=604_800)
    jitter: bool = Field(default=True, description="spread the delays at random")


class BudgetKeys(_Keys):
    """What a task or a step may use of models."""

    tokens: int | None = Field(default=None, ge=1, le=10**12)
    usd: float | None = Field(default=None, gt=0, le=10**9)
    time: PositiveDuration | None = Field(default=None, description="wall-clock time")
    on_exhausted: Literal["pause", "fail"] = "pause"


class DefaultsKeys(_Keys):
    """Defaults for every step."""

    timeout: AttemptTimeout | None = None
    retry: RetryKeys | None = None


class StepKeys(_Keys):
    """The keys that every kind of step has."""

    description: str | None = None
    depends_on: Annotated[list[str], one_or_more] = Field(
        default_factory=list, description="steps that must have ended before this one starts"
    )
    if_: Annotated[Any, _editors_see("string", "boolean")] = Field(
        default=None, alias="if", description="an expression; when it is false the step is skipped"
    )
    run_on: Literal["success", "failure", "always"] | None = None
    on_failure: Literal["run"] | None = Field(
        default=None, description="run: the same as run_on: always"
    )
    foreach: Annotated[Any, _editors_see("string", "array")] = Field(
        default=None, description="a list, or an expression for one: the step runs once per item"
    )
    parallel: Annotated[Any, _editors_see("integer", "string")] = Field(
        default=None, description="a count, or an expression for one: the step runs that often"
    )
    concurrency: int | None = Field(
        default=None, ge=1, le=MAX_ITEMS, description="how many items run at the same time"
    )
    retry: RetryKeys | None = None
    timeout: AttemptTimeout | None = Field(
        default=None, description="for each attempt; none lifts attempt_seconds of [steps]"
    )
    on_unknown: OnUnknown | None = Field(
        default=None, description="what to do about an effect whose result was never recorded"
    )
    executor: Executor | None = Field(
        default=None, description="where the code of a python or shell step runs"
    )
    output: dict[str, Any] | None = Field(
        default=None, description="a JSON Schema of the step's output"
    )
    budget: BudgetKeys | None = None
    set_state: dict[StateName, Any] = Field(
        default_factory=dict,
        min_length=1,
        max_length=MAX_SET_NAMES,
        description="values to keep in state when the step succeeds; `output` is the step's own",
    )


class WorkflowKeys(_Keys):
    """The keys of a workflow file."""

    name: str = Field(pattern=WORKFLOW_NAME_PATTERN, max_length=MAX_NAME_CHARS)
    description: str | None = None
    on: TriggerKeys | None = Field(default=None, description="what starts it by itself")
    inputs: dict[Name, InputKeys] = Field(default_factory=dict)
    defaults: DefaultsKeys | None = None
    max_parallel: int | None = Field(
        default=None, ge=1, le=MAX_STEPS, description="how many steps run at the same time"
    )
    fail_fast: bool = Field(default=True, description="false: let independent branches finish")
    timeout: PositiveDuration | None = Field(default=None, description="for the whole task")
    priority: Literal["high", "normal", "low"] = "normal"
    budget: BudgetKeys | None = None
    steps: dict[Name, Any] = Field(min_length=1, max_length=MAX_STEPS)
    output: Any = Field(default=None, description="a template over the steps' outputs")
    shared: Annotated[list[StateName], AfterValidator(_refuse_twins)] = Field(
        default_factory=list,
        max_length=MAX_NAMES,
        description="values of state that all workflows share",
    )


STEP_WORDS: Final = StepKeys.keys
WORKFLOW_WORDS: Final = WorkflowKeys.keys
