"""The audit log: one line for every operator command: who gave it, from where, and its result.

All processes of one home directory append to `audit.jsonl` there: the daemon for commands over the
API, chats and links, and each command line for its own. A line contains the principal, the source, the
command, the task and the outcome; it contains no token, no answer and no payload. The daemon's log has the
same line. At ten megabytes the file is renamed to `audit.jsonl.1`, which replaces the one before.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from agent.core.clock import Clock, to_iso
from agent.core.escape import harmless_json
from agent.core.logs.log_limit import LogLimit

NAME: Final = "audit.jsonl"
MOST_BYTES: Final = 10 * 1024 * 1024
INVALID: Final = "refused: what was given is not valid"
"""Not the error's own text, which may repeat an answer or a payload."""
_MOST_TEXT: Final = 300
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700

_path: Path | None = None
_is_logged = False
_troubles = LogLimit(most=1, window_seconds=60.0)


def configure(home: Path, *, is_logged: bool = False) -> None:
    """Write to the audit log of a home directory from now on, and to this process's log if asked.

    A command line has no log: its terminal shows what the command says.
    """
    global _path, _is_logged
    _path, _is_logged = home / NAME, is_logged


def record(who: str, source: str, what: str, outcome: str, **details: Any) -> None:
    """Append a line; if that fails, as on a full disk, the failure is logged and the command goes on."""
    line = {
        "at": to_iso(Clock().now()),
        "who": who,
        "from": source,
        "what": what,
        **{name: value for name, value in details.items() if value is not None},
        "outcome": outcome[:_MOST_TEXT],
    }
    shown = {name: value for name, value in line.items() if name != "at"}
    if _is_logged:
        _log().info("audit", **shown)
    if _path is None:
        return
    try:
        _append(_path, harmless_json(line).encode() + b"\n")
    except OSError as error:
        held_back = _troubles.admit()
        if held_back is not None:
            _log().error("audit.not_written", error=str(error), held_back=held_back)


@contextmanager
def recorded(who: str, source: str, what: str, **details: Any) -> Iterator[None]:
    """Record a command with its outcome: done, or the error that it raised."""
    try:
        yield
    except Exception as error:
        outcome = INVALID if isinstance(error, ValueError) else f"refused: {error}"
        record(who, source, what, outcome, **details)
        raise
    record(who, source, what, "done", **details)


def _log() -> Any:
    # Imported here: commands that only list tasks must start quickly.
    import structlog

    return structlog.get_logger("agent.core.audit")


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    while True:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(path, flags, _PRIVATE_FILE)
        try:
            # Held for one write: two processes must not both put a full file away.
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_current(file, path):
                continue
            size = os.fstat(file).st_size
            if os.write(file, line) < len(line):
                # A part of a line would spoil the next one.
                os.ftruncate(file, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if size + len(line) >= MOST_BYTES:
                path.rename(path.with_name(NAME + ".1"))
            return
        finally:
            os.close(file)


def _is_current(file: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
