"""What is measured, by name, and the rounds in which it is."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from bench import progress
from bench.options import Options
from bench.rows import Row, medians
from bench.stores import Stores
from bench.workloads import (
    answer,
    claim,
    cli,
    compile,  # noqa: A004 - no Python is compiled here
    pages,
    recovery,
    rest,
    triggers,
    w,
    wide,
    work,
    workers,
    yaml,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to measure."""

    run: Callable[[Options, Stores, int], Iterator[Row]]
    is_repeated: bool = True
    """Whether every round measures it: what repeats within, or takes long, is measured once."""


WORKLOADS: Final[dict[str, Workload]] = {
    "W": Workload(w.run),
    "workers": Workload(workers.run),
    "work": Workload(work.run),
    "answer": Workload(answer.run, is_repeated=False),
    "recovery": Workload(recovery.run, is_repeated=False),
    "wide": Workload(wide.run, is_repeated=False),
    "claim": Workload(claim.run, is_repeated=False),
    "yaml": Workload(yaml.run),
    "compile": Workload(compile.run, is_repeated=False),
    "rest": Workload(rest.run, is_repeated=False),
    "triggers": Workload(triggers.run, is_repeated=False),
    "pages": Workload(pages.run, is_repeated=False),
    "cli": Workload(cli.run, is_repeated=False),
}


def run(asked: Options, stores: Stores) -> list[Row]:
    """Run everything that was asked for; return one row a measure, the medians of its rounds."""
    found: list[Row] = []
    start = time.perf_counter()
    for number in range(asked.rounds):
        for name, workload in WORKLOADS.items():
            if name not in asked.workloads or (number > 0 and not workload.is_repeated):
                continue
            for new in workload.run(asked, stores, number):
                progress.say_measured(new, number + 1, asked.rounds, time.perf_counter() - start)
                found.append(new)
    return medians(found)
