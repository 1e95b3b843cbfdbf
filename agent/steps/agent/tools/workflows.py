"""Workflows as tools: a child task whose output is the tool's answer.

The transaction that parks the step creates the child, so the child is its own record. The use of the
tool is recorded after the child has ended. Meanwhile the step holds no slot.
"""

from agent.core.waits import Child, ChildRequest, EndedWait
from agent.steps.agent.tool import AgentTool, ToolRun, ToolSnapshot
from agent.steps.attempt.context import StepContext
from agent.steps.types.call_types import Call
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json, Waiting


def describe(workflow: str, context: StepContext) -> dict[str, Json]:
    """Return a workflow's description as a tool; a workflow that does not exist fails the step."""
    facts = context.attempt_input.workflows.get(workflow)
    if facts is None:
        text = f"there is no workflow called {workflow!r}"
        raise DefiniteFailure(text, code="no_such_workflow", kind="input", may_retry=False)
    text = facts["description"] or f"Run the workflow {workflow}."
    return {"name": workflow, "description": text, "schema": facts["schema"]}


def make_tool(name: str, workflow: ToolSnapshot, *, is_effect: bool) -> AgentTool:
    """Return the tool of a workflow."""

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        return _Child(workflow.name, arguments, context)

    return AgentTool(
        name,
        workflow.description,
        workflow.schema,
        lambda _: is_effect,
        start,
        on_unknown="retry",
    )


class _Child(ToolRun):
    has_own_record = True

    def __init__(self, workflow: str, arguments: dict[str, Json], context: StepContext) -> None:
        self._workflow = workflow
        self._arguments = arguments
        self._context = context
        self.prepare = self._wait

    @property
    def _ended(self) -> EndedWait | None:
        """The end of the child that this very use requested; None before that."""
        waited = self._context.attempt_input.waited
        if waited is None or not isinstance(waited.on, Child):
            return None
        return waited if waited.on.tool_use == self._context.calls.number else None

    async def _wait(self) -> None:
        """End the attempt by requesting the child, unless it has ended."""
        if self._ended is None:
            number = self._context.calls.number
            request = ChildRequest(self._workflow, self._arguments, number)
            self._context.calls.end_attempt(Waiting(request, None, self._context.checkpoint))

    async def perform(self, call: Call) -> Json:
        waited = self._ended
        assert waited is not None
        assert isinstance(waited.on, Child)
        ended = waited.result
        status = ended.get("status")
        error = ended.get("error")
        reason = error.get("message") if isinstance(error, dict) else error
        if status == "succeeded":
            # Its steps have run, even if its output could not be computed.
            return ended.get("output") if error is None else {"error": reason}
        text = f"the workflow {self._workflow} was not run" if status == "refused" else ""
        text = text or f"the task {waited.on.task_id} of {self._workflow} is {status or 'gone'}"
        raise DefiniteFailure(f"{text}: {reason}" if reason else text, may_retry=False)
