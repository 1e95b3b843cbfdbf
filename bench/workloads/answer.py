"""From a person's answer to the end of the task that waited for it."""

from collections.abc import Iterator

from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure on each store."""
    if "agent" not in asked.engines:
        return
    for store in asked.stores:
        with stores.migrated(store) as url:
            got = measure("answer", url=url, tasks=5 if asked.is_quick else 50)
        yield row("agent", store, "answer", **got)
