"""What the workflow routes return."""

from typing import Any

from pydantic import Field

from agent.server import examples
from agent.server.schemas.base import Instant, ResponseDocument, with_example


class WorkflowSummary(ResponseDocument):
    """A workflow in a list."""

    model_config = with_example(examples.WORKFLOW_SUMMARY)

    name: str = Field(examples=["invoice-triage"])
    version: int
    description: str | None
    file: str | None = Field(
        description="the file that defines it; such a workflow is read-only here"
    )
    tasks: int = Field(description="the number of tasks started from this version")
    created_at: Instant
    removed_at: Instant | None


class WorkflowList(ResponseDocument):
    """The workflows that can be started."""

    model_config = with_example(examples.WORKFLOWS)

    workflows: list[WorkflowSummary]


class WorkflowDocument(WorkflowSummary):
    """A recorded workflow."""

    model_config = with_example(examples.WORKFLOW)

    graph: Any = Field(description="compiled")
    source: str | None = Field(description="as it was written")
    versions: list[Any]
