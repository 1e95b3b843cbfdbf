"""The startup pass after a crash with 10,000 tasks running."""

from collections.abc import Iterator

from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure on each store."""
    if "agent" not in asked.engines:
        return
    running = 200 if asked.is_quick else 10_000
    for store in asked.stores:
        with stores.migrated(store) as url:
            got = measure("recovery", url=url, running=running)
        yield row("agent", store, "recovery", running=running, **got)
