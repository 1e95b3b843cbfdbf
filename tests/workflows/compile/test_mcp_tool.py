"""`on: mcp`: a workflow as a tool of the MCP server."""

import pytest

from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError

STEPS = "steps: {rest: {wait: 1s}}\n"


def test_an_offered_workflow_knows_its_name_as_a_tool() -> None:
    """Only `mcp: true` offers it."""
    offered = compile_text(f"name: tidy-up\non: {{mcp: true}}\n{STEPS}".encode(), "a.yaml")
    assert offered.mcp_tool == "workflow_tidy-up"
    for on in ("on: {mcp: false}\n", ""):
        assert compile_text(f"name: tidy-up\n{on}{STEPS}".encode(), "a.yaml").mcp_tool is None


def test_a_name_that_models_do_not_accept_is_refused() -> None:
    """A tool has at most 64 characters; the problem says how long the name may be."""
    fits, too_long = "a" * 55, "a" * 56
    compile_text(f"name: {fits}\non: {{mcp: true}}\n{STEPS}".encode(), "a.yaml")
    compile_text(f"name: {too_long}\n{STEPS}".encode(), "a.yaml")
    with pytest.raises(WorkflowError) as refused:
        compile_text(f"name: {too_long}\non: {{mcp: true}}\n{STEPS}".encode(), "a.yaml")
    [problem] = refused.value.problems
    assert problem.key == "on.mcp"
    assert problem.line == 2
    assert problem.hint == "give the workflow a name of at most 55 characters"


@pytest.mark.parametrize("value", ["1", "yes please", "{tool: x}"])
def test_anything_but_true_and_false_is_refused(value: str) -> None:
    """The key takes a truth value."""
    with pytest.raises(WorkflowError):
        compile_text(f"name: a\non: {{mcp: {value}}}\n{STEPS}".encode(), "a.yaml")
