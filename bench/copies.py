"""Copies of a task that the engine made: as many as a measurement needs, and as the engine makes them."""

from collections.abc import Callable, Mapping

from agent.store.db.database import Connection, Database
from agent.store.engine.writes import STEP_TYPES, TASK_TYPES

Change = Callable[[str], Mapping[str, str]]
"""Returns SQL expressions by column; it is given the expression of the copy's number, from 1 on."""


def multiply(
    tx: Connection,
    task_id: str,
    copies: int,
    *,
    series: int = 8,
    task: Change | None = None,
    step: Change | None = None,
) -> None:
    """Copy a task and its steps; `series` tells the ids of several calls apart."""
    if tx.sql.name == "sqlite":
        numbers = (
            "(WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :copies)"
            " SELECT n FROM n) AS n"
        )
        digits = "printf('%012d', n.n)"
        place = "printf('%02x', t.\"index\")"
    else:
        numbers = "generate_series(1, CAST(:copies AS bigint)) AS n(n)"
        digits = "lpad(n.n::text, 12, '0')"
        place = "lpad(to_hex(t.\"index\"), 2, '0')"
    new_task = f"'0190000{series}-0000-7000-8000-' || {digits}"
    new_step = f"'0190000{series}-0000-70' || {place} || '-9000-' || {digits}"
    changed_task = {"id": new_task, "origin_id": new_task, **(task("n.n") if task else {})}
    changed_step = {"id": new_step, "task_id": new_task, **(step("n.n") if step else {})}
    for table, key, types, changed in (
        ("tasks", "id", TASK_TYPES, changed_task),
        ("steps", "task_id", STEP_TYPES, changed_step),
    ):
        names = ", ".join(f'"{name}"' for name in types)
        values = ", ".join(changed.get(name, f't."{name}"') for name in types)
        tx.execute(
            f"INSERT INTO {table} ({names}) SELECT {values}"
            f" FROM {numbers} CROSS JOIN {table} AS t WHERE t.{key} = :task_id",
            copies=copies,
            task_id=task_id,
        )


def settle_down(database: Database) -> None:
    """Let the database finish what a bulk load leaves behind, as time alone would."""
    if database.path is not None:
        with database.connect("writer") as connection:
            connection.query("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    import psycopg

    with psycopg.connect(database.url, autocommit=True) as server:
        server.execute("VACUUM ANALYZE")
        server.execute("CHECKPOINT")
