"""The workload W on LangGraph with its checkpointers: five nodes, a checkpoint before the next one.

It has no queue: the caller runs the graph, and after a crash the caller must call again. What is
compared is the cost of its durable steps. On SQLite it runs on Python's own library: it knows no
other's errors.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict
from uuid import uuid4

from langgraph.graph import END, START, StateGraph

from bench import definitions, load, noops, process
from bench.commits import Count, transaction_ids

_MOST_CONNECTIONS = 10


class _State(TypedDict):
    value: int


def main(url: str, in_flight: int, tasks: int) -> dict[str, Any]:
    """Measure."""
    return asyncio.run(_measure(url, in_flight, tasks))


async def _measure(url: str, in_flight: int, tasks: int) -> dict[str, Any]:
    opening = _sqlite(url) if url.startswith("sqlite:") else _postgres(url, in_flight)
    async with opening as (saver, commits):
        graph = _chain().compile(checkpointer=saver)

        async def run_one() -> None:
            config = {"configurable": {"thread_id": uuid4().hex}}
            # The default writes a checkpoint while the next node runs already.
            await graph.ainvoke({"value": 0}, config, durability="sync")

        return await load.put_on(run_one, commits, in_flight, tasks)


def _chain() -> Any:
    async def node(_: _State) -> dict[str, int]:
        return {"value": await noops.noop()}

    builder = StateGraph(_State)
    names = [f"s{number}" for number in range(definitions.STEPS)]
    for name in names:
        builder.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder


@asynccontextmanager
async def _sqlite(url: str) -> AsyncIterator[tuple[Any, Count]]:
    import sqlite3

    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    commits = 0

    class Counted(aiosqlite.Connection):
        async def commit(self) -> None:
            nonlocal commits
            commits += 1
            await super().commit()

    path = url.removeprefix("sqlite:///")
    async with Counted(lambda: sqlite3.connect(path), iter_chunk_size=64) as connection:
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        await connection.execute("PRAGMA synchronous = FULL")
        for pragma, wanted in (("journal_mode", "wal"), ("synchronous", 2)):
            async with connection.execute(f"PRAGMA {pragma}") as cursor:
                assert await cursor.fetchone() == (wanted,), pragma
        yield saver, lambda: commits


@asynccontextmanager
async def _postgres(url: str, in_flight: int) -> AsyncIterator[tuple[Any, Count]]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    settings = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0}
    size = min(in_flight, _MOST_CONNECTIONS)
    async with AsyncConnectionPool(url, min_size=size, max_size=size, kwargs=settings) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver, transaction_ids(url)


if __name__ == "__main__":
    process.answer(main)
