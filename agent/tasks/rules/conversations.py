"""Conversations: which task takes a turn in one, and what its steps append to it."""

from collections.abc import Iterable

from agent.core.chat_origin import read_origin
from agent.steps.types.conversation import Exchange
from agent.store.db.database import Connection
from agent.store.engine import conversation_rows
from agent.store.engine.conversation_rows import NewEntry
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TaskRow
from agent.workflows.graph import Graph


def join_line(task: TaskRow, graph: Graph) -> None:
    """Let a new task that a chat started take its turn in the conversation, if one of its steps keeps it.

    A child takes no turn of its own: it would wait for its parent, which waits for it.
    """
    if task.chat_origin is None or task.parent_task_id is not None:
        return
    from agent.steps.spec.agent_config import keeps_conversation

    if any(step.kind == "agent" and keeps_conversation(step.config) for step in graph.steps):
        origin = read_origin(task.chat_origin)
        assert origin is not None
        task.set_columns(conversation=origin.conversation)


def append(tx: Connection, locked_tasks: Iterable[LockedTask], now: int) -> None:
    """Append what the steps that succeeded in this transaction said."""
    entries = [
        entry
        for locked in locked_tasks
        for step_id, exchange in locked.exchanges
        for entry in _entries(locked.task.id, step_id, exchange)
    ]
    if entries:
        conversation_rows.append(tx, entries, now)


def _entries(task_id: str, step_id: str, exchange: Exchange) -> list[NewEntry]:
    name, summary = exchange.conversation, exchange.summary
    new_entries: list[tuple[str, str, int, int | None]] = [
        ("user", exchange.message, exchange.message_tokens, None),
        ("assistant", exchange.answer, exchange.answer_tokens, None),
    ]
    if summary is not None:
        new_entries.append(("summary", summary.text, summary.tokens, summary.covers_until))
    return [
        NewEntry(name, role, text, task_id, step_id, tokens, covers)
        for role, text, tokens, covers in new_entries
    ]
