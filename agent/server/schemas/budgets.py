"""What the budget routes take and return."""

from typing import Any

from pydantic import ConfigDict, Field

from agent.server.examples import operation as operation_examples
from agent.server.examples.identities import TASK_ID
from agent.server.schemas.base import RequestDocument, ResponseDocument, with_example


class NewBudget(RequestDocument):
    """What a task, or one of its steps, may use in total."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"usd": 2.5, "tokens": 400000}]})

    step: str | None = Field(default=None, max_length=200, description="the step's own budget")
    tokens: int | None = Field(default=None, ge=1, lt=2**53)
    usd: float | None = Field(default=None, ge=0.000001, le=10**9)
    seconds: float | None = Field(
        default=None, gt=0, le=10**10, description="since the task's start"
    )


class BudgetDocument(ResponseDocument):
    """What a task's own calls of models used, and its budgets with what was used of each."""

    model_config = with_example(operation_examples.BUDGET)

    task: str = Field(examples=[TASK_ID])
    calls: int
    tokens_in: int
    tokens_out: int
    usd: float
    usd_of_unknown_calls: float
    budgets: list[Any]


class DayDocument(ResponseDocument):
    """What all tasks together have used of models on a day, and the limits; null: no limit."""

    model_config = with_example(operation_examples.DAY)

    day: str
    tokens: int
    tokens_limit: int | None
    usd: float
    usd_limit: float | None
    seconds: float
    seconds_limit: float | None
