"""Signals: named values that are sent to a task and kept until a step takes them."""

from agent.store.db.database import Connection


def insert(
    tx: Connection, signal_id: str, task_id: str, name: str, payload: str, sent_at: int
) -> None:
    """Add a signal; its payload is stored JSON."""
    tx.execute(
        "INSERT INTO signals (id, task_id, name, payload, sent_at)"
        " VALUES (:id, :task_id, :name, :payload, :sent_at)",
        id=signal_id,
        task_id=task_id,
        name=name,
        payload=payload,
        sent_at=sent_at,
    )


def first_untaken(tx: Connection, task_id: str, name: str) -> tuple[str, str | None] | None:
    """Return (id, payload) of the oldest signal that no step has taken."""
    rows = tx.query(
        "SELECT id, payload FROM signals WHERE task_id = :task_id AND name = :name"
        " AND taken_by IS NULL ORDER BY id LIMIT 1",
        task_id=task_id,
        name=name,
    )
    return rows[0] if rows else None


def take(tx: Connection, signal_id: str, step_id: str) -> None:
    """Mark a signal as a step's own."""
    tx.execute("UPDATE signals SET taken_by = :step WHERE id = :id", step=step_id, id=signal_id)
