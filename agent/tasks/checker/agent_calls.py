"""Tools of agents that write to the database: once for each call, and only with a call on record."""

from collections.abc import Iterator

from agent.store.db.database import Connection
from agent.store.read.audit import agent_calls as agent_call_audit
from agent.tasks.checker.violation import Violation


def check_agent_calls(connection: Connection) -> Iterator[Violation]:
    """Check memories and started tasks against the ledger, and the index of memories."""
    for memory_id, task_id in agent_call_audit.memories_without_call(connection):
        yield Violation(f"memory {memory_id} was written by no call on record", task_id)
    for task_id, action, count in agent_call_audit.calls_with_several_memories(connection):
        yield Violation(f"{action} has written {count} memories of one text", task_id)
    difference = agent_call_audit.unindexed_memories(connection)
    if difference:
        yield Violation(f"the index of memories differs from them by {difference} rows")
    for task_id, starter in agent_call_audit.starts_without_call(connection):
        yield Violation(f"an agent has started it, and task {starter} has no such call", task_id)
