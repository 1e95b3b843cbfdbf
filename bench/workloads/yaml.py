"""W at 50 in flight, from a workflow file and from the API."""

import shutil
from collections.abc import Iterator
from typing import Final

from bench import definitions, noops
from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores

_IN_FLIGHT: Final = 50


def run(asked: Options, stores: Stores, number: int) -> Iterator[Row]:
    """Measure one after the other."""
    if "agent" not in asked.engines:
        return
    tasks = 100 if asked.is_quick else 4000
    for store in asked.stores:
        with stores.directory() as directory:
            path = directory / "chain.yaml"
            path.write_text(definitions.chain_file(), encoding="utf-8")
            shutil.copy(noops.__file__, directory / "noops.py")
            cases = [("api", None), ("file", str(path))]
            for case, file in cases if number % 2 == 0 else reversed(cases):
                with stores.migrated(store) as url:
                    got = measure("agent_w", url=url, in_flight=_IN_FLIGHT, tasks=tasks, file=file)
                yield row("agent", store, "yaml", in_flight=_IN_FLIGHT, case=case, **got)
