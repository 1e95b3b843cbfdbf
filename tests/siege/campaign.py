"""One siege: agents on one database, under faults, until the judge has read everything."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.siege.faults import Besieger, Server
from tests.siege.household import PATIENCE_SECONDS, Api, Household
from tests.siege.judging import violations
from tests.siege.person import Person, collect
from tests.siege.record import Record
from tests.siege.workload import write_workflows

_END_SECONDS: Final = 300.0
"""For all tasks to end once the faults have stopped."""


@dataclass(frozen=True)
class Size:
    """How much goes on at the same time."""

    tasks: int
    workers: int
    """Beside `agent up`; on SQLite there are none."""


@dataclass
class Result:
    """The result of a siege."""

    database: str
    faults: Counter[str] = field(default_factory=Counter)
    record: Record = field(default_factory=Record)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    directory: Path = Path()


def besiege(
    database: str,
    faults: int,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    size: Size | None = None,
) -> Result:
    """Run one siege on `sqlite` or `postgres`; its directory is kept if there is a violation."""
    size = size or (Size(6, 0) if database == "sqlite" else Size(12, 3))
    directory = Path(tempfile.mkdtemp(prefix=f"siege-{database}-"))
    result = Result(database, directory=directory)
    begun = time.monotonic()
    remotes = Remotes(directory, f"{seed} {database}")
    server = Server() if database == "postgres" else None
    try:
        if server is not None:
            server.start()
        _run(result, remotes, server, faults, size, f"{seed} {database}", say)
    finally:
        remotes.close()
        if server is not None:
            server.stop()
        result.seconds = time.monotonic() - begun
    if not result.violations:
        shutil.rmtree(directory)
    return result


def _run(
    result: Result,
    remotes: "Remotes",
    server: Server | None,
    faults: int,
    size: Size,
    seed: str,
    say: Callable[[str], None],
) -> None:
    directory, record = result.directory, result.record
    book = directory / "book"
    write_workflows(directory / "workflows", remotes.url, book)
    url = None if server is None else server.url()
    household = Household(directory, url, size.workers)
    besieger = Besieger(household, server, remotes.url, seed)
    api = Api(household)
    person = Person(api, record, remotes.url, book, seed, size.tasks)
    try:
        household.start_missing()
        person.start()
        _wait_for_first_task(record, household)
        for number in range(faults):
            besieger.strike()
            if person.problem is not None:
                break
            if number % 10 == 9:
                say(
                    f"{result.database}: {number + 1} of {faults} faults, {len(record.tickets)} tasks"
                )
        result.faults = besieger.counts
        household.start_missing()
        if not person.finish(_END_SECONDS):
            result.violations.append(f"tasks have not ended {_END_SECONDS:g} s after the faults")
        if person.problem is not None:
            result.violations.append(f"the person cannot go on: {person.problem!r}")
        collect(api, record)
        record.read(directory / "ledger", book)
        result.violations += violations(record)
    finally:
        household.close()


def _wait_for_first_task(record: Record, household: Household) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not record.tickets:
        if time.monotonic() > give_up:
            raise TimeoutError(f"no agent takes a task:\n{household.log()}")
        time.sleep(0.05)


class Remotes:
    """The process of the remotes, which no fault touches."""

    def __init__(self, directory: Path, seed: str) -> None:
        program = Path(__file__).with_name("remotes.py")
        self._process = subprocess.Popen(
            [sys.executable, program, directory, seed], stdin=subprocess.DEVNULL
        )
        port = directory / "port"
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not port.exists():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError("the remotes do not start")
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{port.read_text()}"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
