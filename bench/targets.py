"""What is promised of the figures, and whether they keep it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bench.options import ENGINES, STORES
from bench.rows import Row, find

# Steps a second at 50 in flight, over a peer's; of the lower bound, which is "raw".
_AT_LEAST_FASTER: Final = {
    ("sqlite", "dbos"): 30.0,
    ("sqlite", "raw"): 0.5,
    ("postgres", "dbos"): 20.0,
    ("postgres", "absurd"): 8.0,
}
# The time of one idle task, of the best durable peer's.
_AT_MOST_OF_THE_TIME: Final = {"sqlite": 0.4, "postgres": 0.6}
# The processor time of a command, over that of `python -c pass`.
_AT_MOST_TIMES_BARE: Final = {
    "--help": 4.0,
    "version": 4.0,
    "tasks": 8.0,
    "show": 8.0,
    "approvals": 8.0,
    "pause": 8.0,
    "run --detach": 8.0,
    "validate": 15.0,
    "validate, changed files": 15.0,
    "validate, first run": 15.0,
}
_NO_PEERS: Final = ("agent", "raw")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of merit beside its limit, where one is promised."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the promise is kept; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return self.value <= self.at_most if self.at_most is not None else None

    @property
    def limit(self) -> str:
        """The promise, for a person."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else ""


def compare(rows: list[Row]) -> list[Comparison]:
    """Return every comparison that the rows allow."""
    found: list[Comparison] = []
    for store in STORES:
        found += _under_load(rows, store)
        found += _alone(rows, store)
        found += _by_itself([row for row in rows if row["engine"] == "agent"], store)
    found += _workers(rows)
    found += _external_workers(rows)
    loading = find(rows, workload="compile")
    if loading is not None:
        name = f"seconds to compile a file of {loading['steps']} steps"
        found.append(Comparison(name, loading["seconds"], at_most=2.0))
    return found


def _under_load(rows: list[Row], store: str) -> Iterator[Comparison]:
    """Throughput over each of the others."""
    for in_flight in (50, 500):
        what: dict[str, Any] = {"workload": "W", "store": store, "in_flight": in_flight}
        for other in ENGINES[1:]:
            ratio = _ratio(
                rows, "steps_per_s", {**what, "engine": "agent"}, {**what, "engine": other}
            )
            if ratio is not None:
                limit = _AT_LEAST_FASTER.get((store, other)) if in_flight == 50 else None
                name = f"{store}, {in_flight} in flight: steps/s over {other}"
                yield Comparison(name, ratio, at_least=limit)


def _alone(rows: list[Row], store: str) -> Iterator[Comparison]:
    """The time and the transactions of one task on an idle machine."""
    idle: dict[str, Any] = {"workload": "W", "store": store, "in_flight": 1}
    ours = find(rows, engine="agent", **idle)
    if ours is None:
        return
    peers = [
        row for name in ENGINES if name not in _NO_PEERS if (row := find(rows, engine=name, **idle))
    ]
    if peers:
        best = min(peers, key=lambda row: float(row["p50_ms"]))
        name = f"{store}, one idle task: time over {best['engine']}, the fastest peer"
        limit = _AT_MOST_OF_THE_TIME[store]
        yield Comparison(name, ours["p50_ms"] / best["p50_ms"], at_most=limit)
    name = f"{store}, one idle task: write transactions"
    yield Comparison(name, ours["write_tx_per_task"], at_most=6.2)


def _by_itself(ours: list[Row], store: str) -> Iterator[Comparison]:
    of_store = [row for row in ours if row["store"] == store]
    yaml = {"workload": "yaml"}
    ratio = _ratio(of_store, "steps_per_s", {**yaml, "case": "api"}, {**yaml, "case": "file"})
    if ratio is not None:
        yield Comparison(f"{store}, W from a file: cost over the API's", ratio, at_most=1.3)
    claims = [row for row in of_store if row["workload"] == "claim"]
    if len(claims) == 2:
        few, many = sorted(claims, key=lambda row: int(row["waiting"]))
        name = f"{store}, a claim with {many['waiting']:,} waiting over {few['waiting']:,}"
        yield Comparison(name, many["p50_ms"] / few["p50_ms"], at_most=2.0)
    yield from _wide(of_store, store)
    yield from _triggers(of_store, store)
    yield from _commands(of_store, store)
    crashed = find(of_store, workload="recovery")
    if crashed is not None:
        name = f"{store}, seconds to recover {crashed['running']:,} running tasks"
        yield Comparison(name, crashed["seconds"], at_most=5.0)
    answered = find(of_store, workload="answer")
    if answered is not None:
        yield Comparison(f"{store}, from an answer to the task's end: ms", answered["p50_ms"])
    pages = find(of_store, workload="pages")
    if pages is not None:
        yield Comparison(f"{store}, the slowest page: ms", pages["first_byte_ms"], at_most=150)
        name = f"{store}, W beside {pages['pages']} open pages: % lost"
        yield Comparison(name, pages["cost_percent"], at_most=5)
    resting = find(of_store, workload="rest")
    if resting is not None:
        yield Comparison(f"{store}, a daemon at rest: MB", resting["rss_mb"], at_most=120)
        name = f"{store}, a daemon at rest: % of a core"
        yield Comparison(name, resting["cpu_percent"], at_most=1.0)


def _commands(of_store: list[Row], store: str) -> Iterator[Comparison]:
    """Commands over a Python that does nothing; on PostgreSQL the driver's import comes on top."""
    driver = find(of_store, workload="cli", case="psycopg")
    more = 0.0 if driver is None else driver["times_bare"] - 1.0
    for case, limit in _AT_MOST_TIMES_BARE.items():
        found = find(of_store, workload="cli", case=case)
        if found is not None:
            has_driver = not case.startswith(("--help", "version", "validate"))
            limit = round(limit + more, 1) if has_driver else limit
            name = f"{store}, agent {case}: processor time over `python -c pass`"
            yield Comparison(name, found["times_bare"], at_most=limit)


def _triggers(of_store: list[Row], store: str) -> Iterator[Comparison]:
    """Schedules and watchers: idle ones are free, due ones punctual, and firings share commits."""
    promised = (
        ("rest", "cpu_percent", "10,000 schedules, 1,000 watchers at rest: % of a core", 1.0),
        ("punctual", "p50_ms", "an instant beside W, ms late at the median", 100.0),
        ("punctual", "p99_ms", "an instant beside W, ms late at the 99th percentile", 500.0),
        ("burst", "write_tx_per_firing", "instants at once: commits a firing", 1.0),
        ("alone", "write_tx_more", "a scheduled task: commits more than a submitted one's", 1.0),
    )
    for case, figure, name, limit in promised:
        found = find(of_store, workload="triggers", case=case)
        if found is not None:
            yield Comparison(f"{store}, {name}", found[figure], at_most=limit)


def _wide(of_store: list[Row], store: str) -> Iterator[Comparison]:
    for shape in ("group", "graph"):
        rows = [row for row in of_store if row["workload"] == "wide" and row["shape"] == shape]
        if len(rows) == 3:
            alone, at_once, wide = rows
            for narrow in (alone, at_once):
                name = f"{store}, a step of a {shape} of {wide['case']} over {narrow['case']}"
                value = wide["ms_per_step"] / narrow["ms_per_step"]
                yield Comparison(name, value, at_most=2.0)


def _workers(rows: list[Row]) -> Iterator[Comparison]:
    """More workers on one queue are no slower than one, and no task costs them much more."""
    one = find(rows, workload="workers", workers=1)
    for row in rows:
        if one is None or row["workload"] != "workers" or row["workers"] == 1:
            continue
        name = f"{row['store']}, {row['workers']} workers over one"
        # A twentieth is what two runs of the same differ by.
        yield Comparison(f"{name}: steps/s", row["steps_per_s"] / one["steps_per_s"], at_least=0.95)
        yield Comparison(
            f"{name}: CPU a task", row["cpu_ms_per_task"] / one["cpu_ms_per_task"], at_most=1.2
        )


def _external_workers(rows: list[Row]) -> Iterator[Comparison]:
    """Claims through HTTP are at least as fast as those of the faster peer, through its own client."""
    ours = find(rows, workload="work", engine="agent", store="postgres")
    peers = [row for row in rows if row["workload"] == "work" and row["engine"] not in _NO_PEERS]
    if ours is None:
        return
    best = max((row["steps_per_s"] for row in peers), default=None)
    for peer in peers:
        name = f"postgres, {peer['workers']} external workers: claims/s over {peer['engine']}"
        limit = 1.0 if peer["steps_per_s"] == best else None
        yield Comparison(name, ours["steps_per_s"] / peer["steps_per_s"], at_least=limit)


def _ratio(
    rows: list[Row], figure: str, above: dict[str, Any], below: dict[str, Any]
) -> float | None:
    top, bottom = find(rows, **above), find(rows, **below)
    return float(top[figure] / bottom[figure]) if top and bottom else None
