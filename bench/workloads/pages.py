"""The dashboard on a large database: first bytes of its pages, and what open ones cost the worker."""

from collections.abc import Iterator

from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure on each store."""
    if "agent" not in asked.engines:
        return
    size = {"ended": 500, "live": 20, "fetches": 2, "tasks": 50, "rounds": 1}
    for store in asked.stores:
        with stores.migrated(store) as url:
            got = measure("pages", url=url, **(size if asked.is_quick else {}))
        yield row("agent", store, "pages", **got)
