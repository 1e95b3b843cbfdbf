"""What the workflow routes return."""

from typing import Any

from pydantic import Field

from agent.server.examples import workflows as workflow_examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example


class WorkflowSummary(ResponseDocument):
    """A workflow in a list."""

    model_config = with_example(workflow_examples.WORKFLOW_SUMMARY)

    name: str = Field(examples=["invoice-triage"])
    version: int
    description: str | None
    file: str | None = Field(
        description="the file that defines it; such a workflow is read-only here"
    )
    tasks: int = Field(description="the number of tasks started from this version")
    tool: str | None = Field(
        description="its name as a tool of the MCP server; null without `on: mcp: true`"
    )
    created_at: Instant
    removed_at: Instant | None


class WorkflowList(ResponseDocument):
    """The workflows that can be started."""

    model_config = with_example(workflow_examples.WORKFLOWS)

    workflows: list[WorkflowSummary]


class WorkflowDocument(WorkflowSummary):
    """A recorded workflow."""

    model_config = with_example(workflow_examples.WORKFLOW)

    graph: Any = Field(description="compiled")
    source: str | None = Field(description="as it was written")
    code: dict[str, str] | None = Field(
        description="the hashes of the code of its steps, by step; null where they were not recorded"
    )
    versions: list[Any]


class WorkflowSource(RequestDocument):
    """A workflow to check."""

    source: str = Field(
        max_length=1_048_576,
        description="the workflow as in a file: YAML, or the same as JSON",
        examples=["name: hello\nsteps:\n  greet: {shell: {argv: [echo, hello]}}\n"],
    )


class Validation(ResponseDocument):
    """Whether a workflow is valid, and what is wrong with it."""

    model_config = with_example(workflow_examples.VALIDATION)

    valid: bool
    workflow: str | None = Field(description="its name, if it is valid")
    problems: list[Any] = Field(description="each with its line, its key, and a hint")
