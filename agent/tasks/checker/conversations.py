"""Conversations: entries without gaps, one answer for each step, summaries of earlier entries only."""

from collections.abc import Iterator

from agent.store.db.database import Connection
from agent.store.read.audit import conversations as conversation_audit
from agent.tasks.checker.violation import Violation


def check_conversations(connection: Connection) -> Iterator[Violation]:
    """Check every conversation and the steps that its entries name."""
    for name, forgotten, last, count, first, newest in conversation_audit.miscounted(connection):
        yield Violation(
            f"conversation {name} should have the entries {forgotten + 1} to {last},"
            f" and has {count}, from {first} to {newest}"
        )
    for name, number in conversation_audit.without_conversation(connection):
        yield Violation(f"entry {number} belongs to the conversation {name}, which does not exist")
    for name, number, covers in conversation_audit.bad_summaries(connection):
        yield Violation(
            f"entry {number} of conversation {name} sums up the entries until {covers}: they are"
            " not before it, were deleted, or were summed up before"
        )
    for task_id, step_id, role, count in conversation_audit.repeated_answers(connection):
        sentence = f"step {step_id} has appended {count} entries of {role} to a conversation"
        yield Violation(sentence, task_id)
    for task_id, name, number, status in conversation_audit.unfounded_answers(connection):
        sentence = f"its step has appended entry {number} of conversation {name}"
        yield Violation(f"{sentence}, and is {status}, or was kept from another task", task_id)
    for task_id, step_id, name in conversation_audit.missing_answers(connection):
        sentence = f"step {step_id} has succeeded, and its answer is not in conversation {name}"
        yield Violation(sentence, task_id)
    for name, number in conversation_audit.unpaired_entries(connection):
        yield Violation(f"entry {number} of conversation {name} is not followed by its answer")
