"""Limits of a process, by the names that steps use: `memory`, `cpu_seconds`, `files`."""

import resource
from collections.abc import Mapping
from typing import Final

LIMITS: Final = {
    # Counts allocations; the size of the address space would count libraries and reservations.
    "memory": getattr(resource, "RLIMIT_DATA", resource.RLIMIT_AS),
    "cpu_seconds": resource.RLIMIT_CPU,
    "files": resource.RLIMIT_NOFILE,
}


def set_limits(process_id: int, limits: Mapping[str, int]) -> None:
    """Limit another process and the programs that replace it (Linux only)."""
    for name, limit in limits.items():
        kind = LIMITS[name]
        _, hard = resource.prlimit(process_id, kind)
        resource.prlimit(process_id, kind, (within(limit, hard), hard))


def within(limit: int, hard: int) -> int:
    """Return a soft limit that the hard one allows."""
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)
