"""The SQL of workers: a row is heartbeat, fence and record of the last commit in one."""

import json
from typing import Any

from agent.store.db.database import Connection
from agent.store.engine.writes import insert_events


def enroll(
    tx: Connection, worker_id: str, host: str, process_id: int, process_started: str, now: int
) -> None:
    """Add a worker."""
    tx.execute(
        "INSERT INTO workers (id, turn, dead, host, process_id, process_started, started_at)"
        " VALUES (:id, 0, 0, :host, :process_id, :process_started, :now)",
        id=worker_id,
        host=host,
        process_id=process_id,
        process_started=process_started,
        now=now,
    )
    _emit(tx, "worker.started", worker_id, now)


def retire(tx: Connection, worker_id: str, now: int, event: str) -> bool:
    """Declare a worker dead, whatever its number; False if it was before."""
    changed = tx.query(
        "UPDATE workers SET dead = 1, ended_at = :now WHERE id = :id AND dead = 0 RETURNING turn",
        id=worker_id,
        now=now,
    )
    for (tx_number,) in changed:
        _emit(tx, event, worker_id, now, tx_number)
    return bool(changed)


def declare_dead(tx: Connection, worker_id: str, tx_number: int, now: int) -> bool:
    """Declare a worker dead if its number has not changed since it was observed."""
    changed = tx.execute(
        "UPDATE workers SET dead = 1, ended_at = :now WHERE id = :id AND dead = 0 AND turn = :turn",
        id=worker_id,
        turn=tx_number,
        now=now,
    )
    if changed:
        _emit(tx, "worker.died", worker_id, now, tx_number)
    return changed == 1


def turn_of(connection: Connection, worker_id: str) -> int | None:
    """Return the number of a worker's last commit; waits for one that is in flight."""
    rows = connection.query(
        f"SELECT turn FROM workers WHERE id = :id {connection.sql.lock}", id=worker_id
    )
    return int(rows[0][0]) if rows else None


def live_workers(connection: Connection) -> list[tuple[Any, ...]]:
    """Return (id, transaction number, host, process id, start time) of workers not declared dead."""
    return connection.query(
        "SELECT id, turn, host, process_id, process_started FROM workers WHERE dead = 0"
    )


def find(connection: Connection, worker_id: str) -> tuple[bool, str, int, str] | None:
    """Return of a worker whether it is dead, its host, its process id and when that process started."""
    rows = connection.query(
        "SELECT dead = 1, host, process_id, process_started FROM workers WHERE id = :id",
        id=worker_id,
    )
    return (bool(rows[0][0]), rows[0][1], rows[0][2], rows[0][3]) if rows else None


def dead_owners(connection: Connection) -> list[str]:
    """Return dead workers that still own steps."""
    rows = connection.query(
        "SELECT DISTINCT s.owner FROM steps AS s JOIN workers AS w ON w.id = s.owner"
        " WHERE s.owner IS NOT NULL AND w.dead = 1"
    )
    return [str(owner) for (owner,) in rows]


def end_isolation(tx: Connection, worker_id: str, isolated: int, again: int) -> None:
    """Record of a worker's isolated steps that others ran beside them; their tasks are locked."""
    tx.execute(
        "UPDATE steps SET alone = :again WHERE owner = :id AND alone = :isolated",
        id=worker_id,
        isolated=isolated,
        again=again,
    )


def _emit(tx: Connection, event: str, worker_id: str, now: int, tx_number: int = 0) -> None:
    data = json.dumps({"worker": worker_id, "turn": tx_number})
    insert_events(tx, [(None, None, event, None, None, now, data)])
