"""File descriptors: how many this process may have open, and what to do when there are none left.

The soft limit is often 1,024 for the sake of programs that use `select`; the agent does not. Child
processes get the soft limit back that this process was started with.
"""

import errno
import os
import resource
from typing import Final

from agent.core.logs.log_limit import LogLimit

MOST: Final = 65_536
"""The highest soft limit that is set: some programs close every descriptor up to it."""
RETRY_SECONDS: Final = 5.0
"""How long work that found no descriptor waits before its retry."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})

_original_soft: int | None = None
_lines = LogLimit(most=1, window_seconds=60.0)


def raise_limit() -> int:
    """Raise the soft limit towards the hard one; return how many descriptors there may be."""
    global _original_soft  # noqa: PLW0603 - the limit is the process's own
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # macOS refuses more than a limit of its own.
            return limit()
        if _original_soft is None:
            _original_soft = soft
    return limit()


def limit() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def restore_limit(child_id: int) -> None:
    """Give a child process the soft limit that this process was started with (Linux only)."""
    if _original_soft is None or not hasattr(resource, "prlimit"):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.prlimit(child_id, resource.RLIMIT_NOFILE, (_original_soft, hard))
    except OSError:
        # It has ended, or belongs to another user by now.
        return


def are_available() -> bool:
    """Whether at least one more descriptor can be opened now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _EXHAUSTED
    return True


def is_exhaustion(exception: BaseException | None) -> bool:
    """Whether an error, or its cause, is that no descriptor was left."""
    seen: set[int] = set()
    waiting = [exception]
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            return True
        if isinstance(error, BaseExceptionGroup):
            waiting += error.exceptions
        waiting += [error.__cause__, error.__context__]
    return False


def report_exhaustion(what: str) -> None:
    """Log that something found no descriptor, at most once a minute."""
    held_back = _lines.admit()
    if held_back is not None:
        # Imported here: commands that run no step must start quickly.
        import structlog

        log = structlog.get_logger(__name__)
        log.warning("descriptors.exhausted", what=what, limit=limit(), held_back=held_back)
