"""One step's cost in tasks of 20 and of 2,000 parallel steps."""

from collections.abc import Iterator
from typing import Final

from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores

_NARROW: Final = 20
_WIDE: Final = 2000


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure both ways of being wide."""
    if "agent" not in asked.engines:
        return
    for store in asked.stores:
        with stores.migrated(store) as url:
            got = measure("wide", url=url, narrow=_NARROW, wide=100 if asked.is_quick else _WIDE)
        for each in got:
            yield row("agent", store, "wide", **each)
