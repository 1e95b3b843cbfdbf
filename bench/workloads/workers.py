"""One, two and four workers on one PostgreSQL, which drain a queue of tasks like those of W."""

from collections.abc import Iterator
from typing import Final

from bench import progress, usage
from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores

WORKERS: Final = (1, 2, 4)


def run(asked: Options, stores: Stores, number: int) -> Iterator[Row]:
    """Measure each number of workers."""
    if "agent" not in asked.engines or "postgres" not in asked.stores:
        return
    if not usage.can_watch_others():
        progress.say("workers is left out: this system has no /proc to watch the server by")
        return
    tasks = 200 if asked.is_quick else 6000
    for workers in WORKERS if number % 2 == 0 else WORKERS[::-1]:
        with stores.migrated("postgres") as url:
            got = measure("workers", url=url, workers=workers, tasks=tasks)
        yield row("agent", "postgres", "workers", workers=workers, **got)
