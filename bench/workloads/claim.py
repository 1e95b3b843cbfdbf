"""The cost of a claiming commit with few and with very many tasks waiting."""

from collections.abc import Iterator
from typing import Final

from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores

_FEW: Final = 1000
_MANY: Final = 1_000_000


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure both."""
    if "agent" not in asked.engines:
        return
    sizes = (_FEW, 5000 if asked.is_quick else _MANY)
    for store in asked.stores:
        with stores.migrated(store) as few, stores.migrated(store) as many:
            got = measure("claim", databases=list(zip((few, many), sizes, strict=True)))
        for waiting, each in zip(sizes, got, strict=True):
            yield row("agent", store, "claim", waiting=waiting, **each)
