"""Eight workers, each a process, drain a queue through their engine's own client."""

from collections.abc import Iterator
from typing import Final

from bench import progress, usage
from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores

WORKERS: Final = 8
STORES_OF: Final = {
    "agent": ("sqlite", "postgres"),
    "absurd": ("postgres",),
    "procrastinate": ("postgres",),
}
# Enough for a few seconds of each.
_JOBS: Final = {"agent": 4000, "absurd": 2000, "procrastinate": 1000}
_QUICK_JOBS: Final = 100


def run(asked: Options, stores: Stores, number: int) -> Iterator[Row]:
    """Measure every engine that has a queue for programs outside."""
    if not usage.can_watch_others():
        progress.say("work is left out: this system has no /proc to watch the daemon by")
        return
    engines = asked.engines if number % 2 == 0 else asked.engines[::-1]
    for store in asked.stores:
        for engine in engines:
            if store not in STORES_OF.get(engine, ()):
                continue
            jobs = _QUICK_JOBS if asked.is_quick else _JOBS[engine]
            empty = stores.migrated if engine == "agent" else stores.fresh
            with empty(store) as url:
                got = measure(f"{engine}_work", url=url, workers=WORKERS, jobs=jobs)
            yield row(engine, store, "work", workers=WORKERS, **got)
