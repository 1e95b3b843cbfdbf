"""Example documents of workflows."""

from typing import Any, Final

from agent.server.examples.identities import AT

WORKFLOW_SUMMARY: Final[dict[str, Any]] = {
    "name": "hello",
    "version": 1,
    "description": None,
    "file": None,
    "tasks": 12,
    "tool": None,
    "created_at": AT,
    "removed_at": None,
}
VALIDATION: Final = {
    "valid": False,
    "workflow": None,
    "problems": [
        {
            "file": "workflow.yaml",
            "line": 3,
            "column": 3,
            "key": "steps.greet",
            "message": "there is no key 'shel'",
            "hint": "did you mean 'shell'?",
        }
    ],
}
WORKFLOWS: Final = {"workflows": [WORKFLOW_SUMMARY]}
WORKFLOW: Final = {
    **WORKFLOW_SUMMARY,
    "graph": {"name": "hello", "steps": [{"name": "greet", "kind": "shell"}]},
    "source": "name: hello\nsteps:\n  greet: {shell: {argv: [echo, hello], effect: none}}\n",
    "code": {},
    "versions": [{"version": 1, "created_at": AT, "removed_at": None, "file": None, "tasks": 12}],
}
