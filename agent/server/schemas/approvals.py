"""What the approval routes take and return."""

from typing import Any

from pydantic import ConfigDict, Field

from agent.approvals.answering import MAX_DEFER_SECONDS
from agent.server.examples import people as people_examples
from agent.server.examples.identities import TASK_ID
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example


class ApproveRequest(RequestDocument):
    """An approval, with edits of editable values."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"comment": "fine", "edits": {"argv": ["pay", "12"]}}]}
    )

    comment: str | None = Field(default=None, max_length=10_000)
    edits: dict[str, Any] = Field(default_factory=dict, description="by key, as in `editable`")


class DenyRequest(RequestDocument):
    """A denial."""

    reason: str | None = Field(default=None, max_length=10_000, examples=["not this month"])


class AnswerRequest(RequestDocument):
    """A value; for an unknown effect `done`, `retry` or `fail`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "blue"}]})

    value: Any
    comment: str | None = Field(default=None, max_length=10_000)


class DeferRequest(RequestDocument):
    """When to send a reminder."""

    seconds: float = Field(gt=0, le=MAX_DEFER_SECONDS, examples=[3600])


class ApprovalAnswer(ResponseDocument):
    """The result of an answer."""

    model_config = with_example(people_examples.ANSWERED)

    approval: str = Field(examples=[TASK_ID])
    task: str = Field(examples=[TASK_ID])
    step: str = Field(examples=["pay"])
    status: str = Field(examples=["approved"])
    message: str


class ApprovalDocument(ResponseDocument):
    """A question, its full request, and its decision."""

    model_config = with_example(people_examples.APPROVAL)

    id: str = Field(examples=[TASK_ID])
    kind: str = Field(examples=["approval"])
    status: str = Field(examples=["pending"])
    task: str = Field(examples=[TASK_ID])
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


class ApprovalList(ResponseDocument):
    """Questions to people."""

    model_config = with_example(people_examples.APPROVALS)

    approvals: list[ApprovalDocument]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")
