"""The workload W on DBOS, used as its documentation says, with our durability.

On SQLite it gets the same library as ours and a write-ahead log with a sync at every commit, which
is faster than its own default (a rollback journal) and as durable. On PostgreSQL the server decides.
"""

import asyncio
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSConfig
from sqlalchemy import event

from bench import definitions, load, noops, process
from bench.commits import Count, transaction_ids


def main(url: str, in_flight: int, tasks: int) -> dict[str, Any]:
    """Measure."""
    config = DBOSConfig(name="bench", system_database_url=url, log_level="ERROR")
    if url.startswith("sqlite:"):
        from agent.store.db import sqlite_driver

        config["db_engine_kwargs"] = {"module": sqlite_driver.driver().module}
        commits = _watch_sqlite()
    else:
        commits = transaction_ids(url)
    DBOS(config=config)
    DBOS.launch()
    try:
        return asyncio.run(load.put_on(_run_one, commits, in_flight, tasks))
    finally:
        DBOS.destroy()


async def chain() -> None:
    """Run the steps one after the other."""
    for _ in range(definitions.STEPS):
        await _step()


_step = DBOS.step()(noops.noop)
_workflow = DBOS.workflow()(chain)


async def _run_one() -> None:
    handle = await DBOS.start_workflow_async(_workflow)
    await handle.get_result()


def _watch_sqlite() -> Count:
    """Make every connection durable, and count the commits of transactions that wrote."""
    commits = 0

    @event.listens_for(sqlalchemy.Engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        # The driver would open a transaction, inside which neither can be set.
        level, connection.isolation_level = connection.isolation_level, None
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.isolation_level = level

    @event.listens_for(sqlalchemy.Engine, "commit")
    def count(connection: Any) -> None:
        nonlocal commits
        # The driver begins a transaction at the first statement that writes.
        commits += connection.connection.dbapi_connection.in_transaction

    return lambda: commits


if __name__ == "__main__":
    process.answer(main)
