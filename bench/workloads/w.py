"""Tasks of five steps one after the other, in and out of one process: the workload W."""

from collections.abc import Iterator
from typing import Final

from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores

IN_FLIGHT: Final = (1, 50, 500)

STORES_OF: Final = {
    "agent": ("sqlite", "postgres"),
    "dbos": ("sqlite", "postgres"),
    "absurd": ("postgres",),
    "absurd8": ("postgres",),
    "langgraph": ("sqlite", "postgres"),
    "procrastinate": ("postgres",),
    "raw": ("sqlite", "postgres"),
}
"""Which engine lives where."""

# Enough for a second or two of each; a peer with fewer rows in its tables is not put at a
# disadvantage.
_TASKS: Final = {
    "agent": {1: 300, 50: 4000, 500: 8000},
    "dbos": {1: 100, 50: 300, 500: 600},
    "absurd": {1: 100, 50: 500, 500: 1000},
    "absurd8": {50: 500, 500: 1000},
    "langgraph": {1: 50, 50: 150, 500: 500},
    "procrastinate": {1: 50, 50: 150, 500: 500},
    "raw": {1: 500, 50: 8000, 500: 16000},
}
_QUICK_TASKS: Final = {1: 10, 50: 50, 500: 500}

_PROGRAMS: Final[dict[str, tuple[str, dict[str, int]]]] = {"absurd8": ("absurd_w", {"workers": 8})}
"""Who is measured by another one's program, and what is different."""

_OUR_TABLES: Final = ("agent", "raw")
_SLOW: Final = 500
"""What takes a peer long, without any promise that hangs on it, is measured in one round."""


def run(asked: Options, stores: Stores, number: int) -> Iterator[Row]:
    """Measure every engine on every store where it lives."""
    # The order alternates, so that a machine that warms up favours no engine.
    engines = asked.engines if number % 2 == 0 else asked.engines[::-1]
    for store in asked.stores:
        for in_flight in IN_FLIGHT:
            for engine in engines:
                if store not in STORES_OF.get(engine, ()) or in_flight not in _TASKS[engine]:
                    continue
                if in_flight == _SLOW and engine not in _OUR_TABLES and number > 0:
                    continue
                tasks = (_QUICK_TASKS if asked.is_quick else _TASKS[engine])[in_flight]
                empty = stores.migrated if engine in _OUR_TABLES else stores.fresh
                with empty(store) as url:
                    program, given = _PROGRAMS.get(engine, (f"{engine}_w", {}))
                    got = measure(program, url=url, in_flight=in_flight, tasks=tasks, **given)
                yield row(engine, store, "W", in_flight=in_flight, **got)
