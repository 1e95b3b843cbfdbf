"""The diary of external workers: who ran the handler of each step, and when.

Every line is `begin` or `end`, the step's path, the process id and the machine's monotonic time. Workers
append lines; the campaign reads them to find out whose handler runs, and judges them at the end.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """One run of a handler; `end` is infinite where the handler never ended."""

    work: str
    process_id: int
    start: float
    end: float


class Diary:
    """Reads a diary while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = 0
        self._open: dict[int, tuple[str, float]] = {}
        self._ended: list[Run] = []

    def running(self) -> set[int]:
        """Return the ids of processes whose handler has begun and not ended, killed ones among them."""
        self._advance()
        return set(self._open)

    def runs(self, killed_at: Mapping[int, float]) -> list[Run]:
        """Return every run until now; a kill ends the run of its process."""
        self._advance()
        cut = [
            Run(work, process_id, start, killed_at.get(process_id, float("inf")))
            for process_id, (work, start) in self._open.items()
        ]
        return [*self._ended, *cut]

    def _advance(self) -> None:
        """Read the whole lines that were appended since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            text, newline, _ = file.read().rpartition(b"\n")
        self._read += len(text) + len(newline)
        for line in text.decode().splitlines():
            what, work, process_id, at = line.split()
            if what == "begin":
                self._open[int(process_id)] = (work, float(at))
            else:
                _, start = self._open.pop(int(process_id))
                self._ended.append(Run(work, int(process_id), start, float(at)))


def overlaps(runs: list[Run]) -> list[str]:
    """Return what is wrong with the runs: those of one step that overlap in two processes."""
    by_work: dict[str, list[Run]] = {}
    for run in runs:
        by_work.setdefault(run.work, []).append(run)
    found: list[str] = []
    for work, those in by_work.items():
        those.sort(key=lambda run: run.start)
        for run, following in pairwise(those):
            if following.start < run.end:
                pids = f"{run.process_id} and {following.process_id}"
                found.append(f"{work} was run by {pids} at the same time")
    return found
