"""Questions about conversations, for the checker. Each is one statement: one moment."""

from agent.store.db.database import Connection
from agent.store.engine.reads import Rows


def miscounted(connection: Connection) -> Rows:
    """Return (conversation, forgotten until, last number, entries, first, last) that do not fit together."""
    return connection.query(
        "SELECT c.id, c.forgotten_until, c.last_number, count(t.number), min(t.number),"
        " max(t.number) FROM conversations AS c"
        " LEFT JOIN conversation_turns AS t ON t.conversation = c.id"
        " GROUP BY c.id, c.forgotten_until, c.last_number"
        " HAVING count(t.number) <> c.last_number - c.forgotten_until"
        " OR (count(t.number) > 0 AND (min(t.number) <> c.forgotten_until + 1"
        " OR max(t.number) <> c.last_number)) ORDER BY c.id"
    )


def without_conversation(connection: Connection) -> Rows:
    """Return (conversation, number) of entries whose conversation has no row."""
    return connection.query(
        "SELECT t.conversation, t.number FROM conversation_turns AS t"
        " WHERE NOT EXISTS (SELECT 1 FROM conversations AS c WHERE c.id = t.conversation)"
        " ORDER BY t.conversation, t.number"
    )


def bad_summaries(connection: Connection) -> Rows:
    """Return (conversation, number, covers until) of summaries of later or deleted entries, or of fewer than before."""
    return connection.query(
        "SELECT s.conversation, s.number, s.covers_until FROM conversation_turns AS s"
        " JOIN conversations AS c ON c.id = s.conversation WHERE s.role = 'summary'"
        " AND (s.covers_until >= s.number OR s.covers_until <= c.forgotten_until"
        " OR EXISTS (SELECT 1 FROM conversation_turns AS e WHERE e.conversation = s.conversation"
        " AND e.role = 'summary' AND e.number < s.number AND e.covers_until >= s.covers_until))"
        " ORDER BY s.conversation, s.number"
    )


def repeated_answers(connection: Connection) -> Rows:
    """Return (task, step, role, count) of steps that have appended more than one entry of a role."""
    return connection.query(
        "SELECT task_id, step_id, role, count(*) FROM conversation_turns"
        " WHERE step_id IS NOT NULL GROUP BY task_id, step_id, role HAVING count(*) > 1"
        " ORDER BY task_id, step_id, role"
    )


def unfounded_answers(connection: Connection) -> Rows:
    """Return (task, conversation, number, status) of entries whose step exists and has not succeeded itself.

    A kept step has no claim of its own, and appends nothing.
    """
    return connection.query(
        "SELECT t.task_id, t.conversation, t.number, s.status FROM conversation_turns AS t"
        " JOIN steps AS s ON s.id = t.step_id"
        " WHERE s.status <> 'succeeded' OR s.claim_token = 0 ORDER BY t.conversation, t.number"
    )


def unpaired_entries(connection: Connection) -> Rows:
    """Return (conversation, number) of messages without the answer of the same step right behind."""
    return connection.query(
        "SELECT u.conversation, u.number FROM conversation_turns AS u WHERE u.role = 'user'"
        " AND NOT EXISTS (SELECT 1 FROM conversation_turns AS a"
        " WHERE a.conversation = u.conversation AND a.number = u.number + 1"
        " AND a.role = 'assistant' AND a.step_id = u.step_id) ORDER BY u.conversation, u.number"
    )


def missing_answers(connection: Connection) -> Rows:
    """Return (task, step, conversation) of succeeded steps that loaded a conversation and appended nothing.

    Conversations that were deleted once are left out.
    """
    request = "request ->> 'conversation'"
    if connection.sql.name == "postgresql":
        request = "CAST(request AS jsonb) ->> 'conversation'"
    return connection.query(
        "SELECT s.task_id, s.id, l.conversation FROM steps AS s JOIN (SELECT DISTINCT step_id,"
        f" {request} AS conversation FROM tool_calls WHERE action = 'conversation#1')"
        " AS l ON l.step_id = s.id"
        " WHERE s.kind = 'agent' AND s.status = 'succeeded' AND s.claim_token > 0"
        " AND NOT EXISTS (SELECT 1 FROM conversation_turns AS t WHERE t.step_id = s.id)"
        " AND NOT EXISTS (SELECT 1 FROM conversations AS c"
        " WHERE c.id = l.conversation AND c.forgotten_until > 0) ORDER BY s.id"
    )
