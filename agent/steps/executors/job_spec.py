"""What a job gets to know: the specification that the agent writes and `agent job` reads."""

from typing import Any, Final

from agent.steps.attempt.context import StepContext
from agent.steps.attempt.services import Limits
from agent.steps.types.attempt_input import AttemptInput, TaskView, Upstream
from agent.workflows.graph import Graph, Step

VERSION: Final = 1
Document = dict[str, Any]


def document_of(
    context: StepContext, kind: str, config: Document, seconds: float | None, status_seconds: float
) -> Document:
    """Return the specification of an attempt; secrets stay references, which the job resolves."""
    attempt_input, limits = context.attempt_input, context.services.limits
    task = attempt_input.task
    return {
        "version": VERSION,
        "kind": kind,
        "config": config,
        "secret_paths": [list(path) for path in context.secret_paths],
        "task": {
            "id": task.id,
            "workflow": task.workflow,
            "version": task.version,
            "input": task.input,
            "trigger": task.trigger,
            "origin_id": task.origin_id,
            "created_at": task.created_at,
            "source_path": task.source_path,
        },
        "step": {"id": attempt_input.step_id, "name": attempt_input.step.name},
        "attempt": attempt_input.attempt,
        "max_attempts": attempt_input.max_attempts,
        "parallel_index": attempt_input.parallel_index,
        "parallel_count": attempt_input.parallel_count,
        "item": attempt_input.item,
        "upstream": {
            name: {"status": step.status, "output": step.output, "error": step.error}
            for name, step in attempt_input.upstream.items()
        },
        "checkpoint": context.checkpoint,
        "timeout_seconds": seconds,
        "status_seconds": status_seconds,
        "limits": {
            "output_bytes": limits.output_bytes,
            "log_bytes": limits.log_bytes,
            "kill_grace_seconds": limits.kill_grace_seconds,
            "inherit": list(limits.inherit),
            "directory": limits.directory,
        },
    }


def attempt_of(spec: Document) -> AttemptInput:
    """Return the attempt that a specification describes."""
    name, kind = spec["step"]["name"], spec["kind"]
    # The configuration is rendered already: as part of a definition it would be rendered again.
    config = {"call": spec["config"]["call"]} if kind == "python" else {}
    step = Step(
        name=name,
        kind=kind,
        config=config,
        timeout_seconds=spec["timeout_seconds"],
        has_no_timeout=spec["timeout_seconds"] is None,
    )
    task = spec["task"]
    return AttemptInput(
        task=TaskView(**task, deadline=None),
        graph=Graph(name=task["workflow"], steps=[step]),
        step=step,
        step_id=spec["step"]["id"],
        attempt=spec["attempt"],
        max_attempts=spec["max_attempts"],
        claim_token=0,
        is_group=False,
        parallel_index=spec["parallel_index"],
        parallel_count=spec["parallel_count"],
        item=spec["item"],
        checkpoint=spec["checkpoint"],
        upstream={name: Upstream(**values) for name, values in spec["upstream"].items()},
    )


def limits_of(spec: Document, directory: str | None) -> Limits:
    """Return the limits of the attempt; `directory` is where commands run."""
    limits = {**spec["limits"], "inherit": tuple(spec["limits"]["inherit"])}
    # A large output is an object of its own: it never enters the row of a step here.
    return Limits(**{**limits, "directory": directory}, inline_bytes=limits["output_bytes"])
