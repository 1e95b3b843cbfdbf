"""What a process has used of the machine."""

import os
import resource
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

_PROC: Final = Path("/proc")


def can_watch_others() -> bool:
    """Whether another process's usage can be read here."""
    return (_PROC / "self" / "statm").exists()


def rss_mb(process_id: int | None = None) -> float:
    """Return the resident memory of a process; where only the peak can be had, its own peak."""
    statm = _PROC / str(process_id or "self") / "statm"
    if statm.exists():
        pages = int(statm.read_text().split()[1])
        return round(pages * resource.getpagesize() / 2**20, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)


def cpu_seconds(process_id: int) -> float:
    """Return the processor time that another process has used so far."""
    text = (_PROC / str(process_id) / "stat").read_text()
    # The name, in parentheses, may itself hold spaces.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p50_ms(seconds: Sequence[float]) -> float:
    """Return the median of durations, in milliseconds."""
    return round(median(seconds) * 1000, 3)
