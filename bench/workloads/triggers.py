"""Ten thousand schedules and a thousand watchers: at rest, on time beside W, and all at once.

APScheduler's own job store on SQLite does the same, as far as it can: it has neither watchers nor tasks.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.store.db.database import Database
from agent.store.engine import trigger_rows
from bench import progress, usage
from bench.options import Options
from bench.process import measure
from bench.rows import Row, row
from bench.stores import Stores
from bench.workloads.rest import daemon, watch

NAME: Final = "triggers"
_FILES: Final = 10
_PATIENCE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How much is measured."""

    schedules: int
    watchers: int
    rest_seconds: float
    settle_seconds: float
    instants: int
    burst: int
    alone: int


_WHOLE: Final = _Sizes(10_000, 1000, 60.0, 5.0, 500, 1000, 20)
_QUICK: Final = _Sizes(100, 10, 1.0, 0.2, 10, 20, 2)
_SPACING_SECONDS: Final = 0.02
_APART_SECONDS: Final = 0.3
"""Between two instants of an idle engine: the task of the first has ended."""


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure on each store, and the peer on the one where it lives."""
    sizes = _QUICK if asked.is_quick else _WHOLE
    for store in asked.stores:
        if "agent" in asked.engines:
            for case, figures in _ours(stores, store, sizes):
                yield row("agent", store, NAME, case=case, **figures)
        if "apscheduler" in asked.engines and store == "sqlite":
            for case, figures in _peer(stores, sizes):
                yield row("apscheduler", store, NAME, case=case, **figures)


def _ours(stores: Stores, store: str, sizes: _Sizes) -> Iterator[tuple[str, dict[str, Any]]]:
    if usage.can_watch_others():
        with stores.directory() as directory, stores.fresh(store) as url:
            yield "rest", _at_rest(url, directory, sizes)
    else:
        progress.say("triggers at rest are left out: this system has no /proc")
    given: dict[str, dict[str, Any]] = {
        "punctual": {
            "schedules": sizes.schedules,
            "instants": sizes.instants,
            "spacing_seconds": _SPACING_SECONDS,
        },
        "burst": {"instants": sizes.burst},
        "alone": {"instants": sizes.alone, "spacing_seconds": _APART_SECONDS},
    }
    for case, values in given.items():
        with stores.migrated(store) as url:
            yield case, measure("triggers", case=case, url=url, **values)


def _peer(stores: Stores, sizes: _Sizes) -> Iterator[tuple[str, dict[str, Any]]]:
    with stores.fresh("sqlite") as url:
        seconds = min(sizes.rest_seconds, 15.0)
        yield "rest", _measure_peer("rest", url, schedules=sizes.schedules, seconds=seconds)
    with stores.fresh("sqlite") as url, stores.migrated("sqlite") as w_url:
        got = _measure_peer(
            "punctual",
            url,
            w_url=w_url,
            schedules=sizes.schedules,
            instants=sizes.instants,
            spacing_seconds=_SPACING_SECONDS,
        )
        yield "punctual", got
    with stores.fresh("sqlite") as url:
        yield "burst", _measure_peer("burst", url, instants=sizes.burst)


def _measure_peer(case: str, url: str, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = measure("apscheduler_triggers", case=case, url=url, **given)
    return found


def _at_rest(url: str, directory: Path, sizes: _Sizes) -> dict[str, Any]:
    """Start a daemon, let every watcher poll once, and watch it while nothing is due."""
    (directory / "workflows").mkdir()
    for number in range(_FILES):
        text = _file(number, sizes.schedules // _FILES, sizes.watchers // _FILES)
        (directory / "workflows" / f"many{number}.yaml").write_text(text, encoding="utf-8")
    start = time.perf_counter()
    with daemon(url, directory) as process_id:
        _await_polls(url, sizes)
        seconds = time.perf_counter() - start
        figures = watch(process_id, sizes.settle_seconds, sizes.rest_seconds)
    return {**figures, "ready_seconds": round(seconds, 1)}


def _file(number: int, schedules: int, watchers: int) -> str:
    """Return a workflow with triggers that are not due for a day, in every way to write them."""
    day = (time.gmtime().tm_yday + 180) % 365
    month, of_month = day // 31 + 1, day % 28 + 1
    times = (f'cron: "7 3 {of_month} {month} *"', "every: 180d", 'at: "2999-01-01T09:00"')
    lines = [f"name: many{number}", "on:", "  schedule:"]
    lines += [f"    - {{id: s{each}, {times[each % 3]}}}" for each in range(schedules)]
    sources = ('command: {argv: ["true"]}', "path: {path: ., match: '*.none', poll: true}")
    lines.append("  watch:")
    lines += [f"    - {{id: w{each}, {sources[each % 2]}, every: 24h}}" for each in range(watchers)]
    lines += ["steps:", '  done: {shell: {argv: ["true"], effect: none}}']
    return "\n".join(lines) + "\n"


def _await_polls(url: str, sizes: _Sizes) -> None:
    deadline = time.perf_counter() + _PATIENCE_SECONDS
    with Database(url).connect("reader") as connection:
        while True:
            rows = trigger_rows.all_rows(connection)
            watchers = [each for each in rows if each.kind == "watch"]
            if len(rows) == sizes.schedules + sizes.watchers and all(w.polls for w in watchers):
                return
            if time.perf_counter() > deadline:
                polled = sum(each.polls > 0 for each in watchers)
                raise SystemExit(f"{polled} of {len(watchers)} watchers were polled in time")
            time.sleep(1.0)
