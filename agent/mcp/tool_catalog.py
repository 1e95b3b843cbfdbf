"""The agent's own tools: which operations of the HTTP API they are, and how they are described.

A route that is not listed here is no tool. A test compares the list with `docs/mcp.md`.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent.mcp.route_tools import Hints, RouteTool, route_tool

READ: Final = Hints(is_read_only=True, is_idempotent=True)
CHANGE: Final = Hints()
REPEATABLE: Final = Hints(is_idempotent=True)
DESTRUCTIVE: Final = Hints(is_destructive=True, is_idempotent=True)
DECISION: Final = Hints(is_destructive=True)

START: Final = "start_workflow"
WAIT: Final = "wait_for_task"


class Entry(NamedTuple):
    """One tool, and the operation that it is."""

    name: str
    operation: str
    hints: Hints
    description: str = ""
    """Instead of the operation's own."""


CATALOG: Final = (
    Entry("list_workflows", "list_workflows", READ),
    Entry("get_workflow", "get_workflow", READ),
    Entry("validate_workflow", "validate_workflow", READ),
    Entry("list_tasks", "list_tasks", READ),
    Entry("get_task", "get_task", READ),
    Entry("pause_task", "pause_task", REPEATABLE),
    Entry("resume_task", "resume_task", REPEATABLE),
    Entry("cancel_task", "cancel_task", DESTRUCTIVE),
    Entry("retry_task", "retry_task", REPEATABLE),
    Entry("fork_task", "fork_task", CHANGE),
    Entry(
        "signal_task",
        "signal_task",
        CHANGE,
        "Send a signal with a value to a task; it is kept until a step takes it. `value` is any JSON.",
    ),
    Entry("prune_tasks", "prune_tasks", DESTRUCTIVE),
    Entry("list_steps", "list_steps", READ),
    Entry("get_step", "read_step", READ),
    Entry("resolve_step", "resolve_step", DECISION),
    Entry("read_task_logs", "read_task_logs", READ),
    Entry("read_step_logs", "read_step_logs", READ),
    Entry("list_task_calls", "list_task_calls", READ),
    Entry("list_events", "list_events", READ),
    Entry("list_approvals", "list_approvals", READ),
    Entry("get_approval", "get_approval", READ),
    Entry("approve", "approve_approval", DECISION),
    Entry("deny", "deny_approval", DECISION),
    Entry("answer", "answer_approval", DECISION),
    Entry("defer", "defer_approval", REPEATABLE),
    Entry("list_triggers", "list_triggers", READ),
    Entry("get_trigger", "get_trigger", READ),
    Entry("list_firings", "list_firings", READ),
    Entry("pause_trigger", "pause_trigger", REPEATABLE),
    Entry("resume_trigger", "resume_trigger", REPEATABLE),
    Entry("run_trigger", "run_trigger", CHANGE),
    Entry("skip_trigger", "skip_trigger", CHANGE),
    Entry("backfill_trigger", "backfill_trigger", REPEATABLE),
    Entry("reset_trigger", "reset_trigger", DESTRUCTIVE),
    Entry("check_trigger", "check_trigger", READ),
    Entry("list_state", "list_state", READ),
    Entry("get_state", "get_state", READ),
    Entry("set_state", "set_state", REPEATABLE),
    Entry("delete_state", "delete_state", DESTRUCTIVE),
    Entry("list_snapshots", "list_snapshots", READ),
    Entry("get_latest_snapshot", "latest_snapshot", READ),
    Entry("append_snapshot", "append_snapshot", CHANGE),
    Entry("list_queues", "list_queues", READ),
    Entry("expire_leases", "expire_leases", DESTRUCTIVE),
    Entry("list_dead_letters", "list_dead_letters", READ),
    Entry("requeue_dead_letter", "requeue_dead_letter", REPEATABLE),
    Entry("resume_work", "resume_work", REPEATABLE),
    Entry(
        "claim_work",
        "claim_work",
        CHANGE,
        "Claim work of queues: each piece has its input, a lease and the answer to what was asked last. Call"
        " start_work before you act, heartbeat at least every third of `lease_seconds`, and end it with"
        " complete_work, fail_work, release_work, ask_person or block_work.",
    ),
    Entry("start_work", "start_work", REPEATABLE),
    Entry(
        "heartbeat",
        "extend_lease",
        REPEATABLE,
        "Extend a lease, and learn whether to go on: `action` is continue, pause (save a checkpoint and release"
        " the work), cancel (stop, the result is not wanted) or changed (read the newer snapshot:"
        " read_latest_snapshot).",
    ),
    Entry("save_checkpoint", "save_checkpoint", REPEATABLE),
    Entry("write_log", "write_log", CHANGE),
    Entry("add_artifact", "add_artifact", CHANGE),
    Entry("add_snapshot", "add_snapshot", CHANGE),
    Entry("read_snapshots", "read_snapshots", READ),
    Entry("read_latest_snapshot", "read_latest_snapshot", READ),
    Entry("complete_work", "complete_work", REPEATABLE),
    Entry("fail_work", "fail_work", REPEATABLE),
    Entry("release_work", "release_work", REPEATABLE),
    Entry("ask_person", "ask_person", REPEATABLE),
    Entry("block_work", "block_work", REPEATABLE),
    Entry("get_task_budget", "get_task_budget", READ),
    Entry("get_day_budget", "get_day_budget", READ),
)
"""The tools that are one request each; `task_waits` has the two that may wait."""


def route_tools(api: Mapping[str, Any]) -> dict[str, RouteTool]:
    """Return the tools by name, made from the OpenAPI description."""
    return {
        entry.name: route_tool(entry.name, entry.operation, entry.hints, entry.description, api)
        for entry in CATALOG
    }
