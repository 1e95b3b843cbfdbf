"""A lower bound: the rows of the workload W, written set-based through SQLAlchemy by no engine.

All tasks in flight go through their steps in step: each transaction ends one step of every task and begins
the next, with the last one the tasks that follow are made. Nothing is read, decided or run, and
no other process could take part: what an engine costs on top is everything that an engine is for.
"""

import json
import time
from typing import Any, Final

import sqlalchemy
from sqlalchemy import event, text

from agent.core.clock import SECOND
from agent.core.ids import new_id
from agent.store.db.dialect import POSTGRESQL, SQLITE, ColumnType, Sql
from agent.store.engine.writes import STEP_TYPES, TASK_TYPES
from bench import process, usage
from bench.definitions import STEPS

_EVENT_TYPES: Final[dict[str, ColumnType]] = {
    "task_id": "text",
    "seq": "int",
    "type": "text",
    "step_id": "text",
    "attempt": "int",
    "at": "int",
    "data": "text",
}
_ENDED: Final = (
    "id", "status", "wake_at", "placed", "owner", "claim_turn", "output", "ended_at",
)  # fmt: skip
_BEGUN: Final = (
    "id", "status", "deps_remaining", "wake_at", "placed", "owner", "claim_token", "claim_turn",
    "started_at",
)  # fmt: skip
_MOVED: Final = ("id", "steps_open", "event_seq")
_FINISHED: Final = (
    *_MOVED, "status", "steps_running", "places_taken", "next_wake_time", "ended_at",
)  # fmt: skip
_EVENTS_BEFORE: Final = 3
"""A task's events before its first step ends: created, started, claimed."""


def main(url: str, in_flight: int, tasks: int) -> dict[str, Any]:
    """Write the rows of a number of tasks."""
    with _engine(url).connect() as connection:
        writer = _Writer(connection, SQLITE if url.startswith("sqlite:") else POSTGRESQL)
        writer.introduce()
        writer.run(in_flight, min(in_flight, 50))
        cpu, start, before = time.process_time(), time.perf_counter(), writer.commits
        latencies = writer.run(in_flight, tasks)
        elapsed = time.perf_counter() - start
        cpu = time.process_time() - cpu
        written = len(latencies) * in_flight
        return {
            "steps_per_s": round(written * STEPS / elapsed, 1),
            "p50_ms": usage.p50_ms(latencies),
            "write_tx_per_task": round((writer.commits - before) / written, 3),
            "cpu_ms_per_task": round(cpu * 1000 / written, 3),
            "rss_mb": usage.rss_mb(),
        }


class _Writer:
    """One connection that writes the rows of a worker's commits."""

    def __init__(self, connection: sqlalchemy.Connection, sql: Sql) -> None:
        self.commits = 0
        self._connection = connection
        self._worker = new_id()
        self._new_tasks = _insert(sql, "tasks", dict(TASK_TYPES))
        self._new_steps = _insert(sql, "steps", dict(STEP_TYPES))
        self._events = _insert(sql, "events", _EVENT_TYPES, xid=sql.xid)
        self._ended = _update(sql, "steps", {name: STEP_TYPES[name] for name in _ENDED})
        self._begun = _update(sql, "steps", {name: STEP_TYPES[name] for name in _BEGUN})
        self._moved = _update(sql, "tasks", {name: TASK_TYPES[name] for name in _MOVED})
        self._finished = _update(sql, "tasks", {name: TASK_TYPES[name] for name in _FINISHED})

    def introduce(self) -> None:
        """Write the rows that all tasks refer to."""
        with self._connection.begin():
            self._connection.execute(
                text(
                    "INSERT INTO workers (id, turn, dead, host, process_id, process_started,"
                    " started_at) VALUES (:id, 0, 0, '', 0, '', 0)"
                ),
                {"id": self._worker},
            )
            self._connection.execute(
                text(
                    "INSERT INTO workflows (name, version, hash, graph, created_at)"
                    " VALUES ('chain', 1, '', '{}', 0)"
                )
            )

    def run(self, in_flight: int, tasks: int) -> list[float]:
        """Write tasks in batches; return the duration of each batch."""
        latencies = []
        lot = self._lot(in_flight)
        with self._connection.begin():
            self._fence()
            self._create(lot)
        for _ in range(-(-tasks // in_flight)):
            start = time.perf_counter()
            following = self._lot(in_flight)
            for number in range(STEPS):
                with self._connection.begin():
                    self._fence()
                    self._end_step(lot, number)
                    if number + 1 == STEPS:
                        self._create(following)
            lot = following
            latencies.append(time.perf_counter() - start)
        return latencies

    @staticmethod
    def _lot(size: int) -> list[tuple[str, list[str]]]:
        return [(new_id(), [new_id() for _ in range(STEPS)]) for _ in range(size)]

    def _fence(self) -> None:
        self.commits += 1
        self._connection.execute(
            text("UPDATE workers SET turn = :turn WHERE id = :id AND turn = :before AND dead = 0"),
            {"id": self._worker, "turn": self.commits, "before": self.commits - 1},
        )

    def _create(self, lot: list[tuple[str, list[str]]]) -> None:
        now = time.time_ns() // 1000
        later = now + 60 * SECOND
        tasks, steps, events = [], [], []
        for task, its_steps in lot:
            given = {
                "id": task, "status": "running", "workflow_name": "chain", "workflow_version": 1,
                "priority": 1, "input": "{}", "next_wake_time": later, "steps_open": STEPS,
                "steps_running": 1, "steps_failed": 0, "steps_held": 0, "places_taken": 1,
                "phase": "normal", "event_seq": _EVENTS_BEFORE, "trigger": "null", "depth": 0,
                "origin_id": task, "created_at": now, "started_at": now,
            }  # fmt: skip
            tasks.append([given.get(name) for name in TASK_TYPES])
            for index, step in enumerate(its_steps):
                is_first = index == 0
                given = {
                    "id": step, "task_id": task, "index": index, "parallel_index": -1,
                    "name": f"s{index}", "kind": "python",
                    "status": "running" if is_first else "pending", "attempt": 1,
                    "max_attempts": 1, "deps_remaining": 0 if is_first else 1, "deps_failed": 0,
                    "wake_at": later if is_first else None, "held": 0, "placed": int(is_first),
                    "alone": 0, "owner": self._worker if is_first else None,
                    "claim_token": int(is_first), "claim_turn": self.commits if is_first else None,
                    "failures": 0, "items_done": 0, "items_placed": 0, "items_ended": 0,
                    "items_failed": 0, "started_at": now if is_first else None,
                }  # fmt: skip
                steps.append([given.get(name) for name in STEP_TYPES])
            made = '{"workflow": "chain", "version": 1}'
            events.append([task, 1, "task.created", None, None, now, made])
            events.append([task, 2, "task.started", None, None, now, None])
            events.append([task, 3, "step.claimed", its_steps[0], 1, now, None])
        self._write(self._new_tasks, tasks)
        self._write(self._new_steps, steps)
        self._write(self._events, events)

    def _end_step(self, lot: list[tuple[str, list[str]]], number: int) -> None:
        now = time.time_ns() // 1000
        later = now + 60 * SECOND
        is_last = number + 1 == STEPS
        ended, begun, moved, events = [], [], [], []
        for task, its_steps in lot:
            step = its_steps[number]
            ended.append([step, "succeeded", None, 0, None, None, "1", now])
            seq = _EVENTS_BEFORE + 2 * number + 2
            events.append([task, seq - 1, "step.succeeded", step, 1, now, None])
            if is_last:
                moved.append([task, 0, seq, "succeeded", 0, 0, None, now])
                events.append([task, seq, "task.succeeded", None, None, now, None])
            else:
                after = its_steps[number + 1]
                begun.append([after, "running", 0, later, 1, self._worker, 1, self.commits, now])
                moved.append([task, STEPS - number - 1, seq])
                events.append([task, seq, "step.claimed", after, 1, now, None])
        self._write(self._ended, ended)
        if begun:
            self._write(self._begun, begun)
        self._write(self._finished if is_last else self._moved, moved)
        self._write(self._events, events)

    def _write(self, statement: sqlalchemy.TextClause, rows: list[list[Any]]) -> None:
        self._connection.execute(statement, {"rows": json.dumps(rows)})


def _insert(
    sql: Sql, table: str, columns: dict[str, ColumnType], **also: str
) -> sqlalchemy.TextClause:
    names = ", ".join(f'"{name}"' for name in (*columns, *also))
    picked = ", ".join((*(f'r."{name}"' for name in columns), *also.values()))
    return text(f"INSERT INTO {table} ({names}) SELECT {picked} FROM {sql.rows(**columns)}")


def _update(sql: Sql, table: str, columns: dict[str, ColumnType]) -> sqlalchemy.TextClause:
    assigned = ", ".join(f'"{name}" = r."{name}"' for name in columns if name != "id")
    rows = sql.rows(**columns)
    return text(f"UPDATE {table} SET {assigned} FROM {rows} WHERE {table}.id = r.id")


def _engine(url: str) -> sqlalchemy.Engine:
    if not url.startswith("sqlite:"):
        engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
        # As our own connections: or plans made while the tables are empty scan them for ever.
        event.listen(engine, "connect", lambda raw, _: _set_up_postgres(raw))
        return engine
    from agent.store.db import sqlite_driver

    engine = sqlalchemy.create_engine(url, module=sqlite_driver.driver().module)
    event.listen(engine, "connect", lambda raw, _: _set_up_sqlite(raw))
    event.listen(engine, "begin", lambda opened: opened.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _set_up_postgres(raw: Any) -> None:
    raw.execute(
        "SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;"
        " SET enable_hashjoin = off; SET enable_mergejoin = off"
    )
    raw.commit()


def _set_up_sqlite(raw: Any) -> None:
    raw.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        raw.execute(f"PRAGMA {pragma}").fetchall()


if __name__ == "__main__":
    process.answer(main)
