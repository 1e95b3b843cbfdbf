"""Processes by identity: an id alone may have been given to another one since.

A process is known by its id and when it started (as text, compared and never read). A step's
command leads a session and a process group of its own, so that everything it started ends with it;
its environment says whose it is, so that what outlives its agent can be told from strangers.
"""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STEP: Final = "AGENT_STEP_ID"
ATTEMPT: Final = "AGENT_STEP_ATTEMPT"
AGENT: Final = "AGENT_STEP_STARTED_BY"
"""The process that runs the attempt, by its id and when it started."""

_PROC: Final = Path("/proc")
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class _Stat:
    id: int
    state: str
    group: int
    started: str


def start_time(process_id: int) -> str | None:
    """Return when a process started, as text that no other process of that id shares."""
    stat = _read(process_id)
    return None if stat is None or stat.state == "Z" else stat.started


def is_running(process_id: int, started: str) -> bool:
    """Whether this very process still runs."""
    return start_time(process_id) == started


def group_runs(group_id: int) -> bool:
    """Whether any process of a group still runs; those that wait to be reaped do not."""
    try:
        os.killpg(group_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return any(stat.group == group_id and stat.state != "Z" for stat in _all())


def signal_group(group_id: int, number: int) -> None:
    """Send a signal to a group; one that has ended is no error."""
    try:
        os.killpg(group_id, number)
    except (ProcessLookupError, PermissionError):
        return


@dataclass(frozen=True, slots=True)
class Orphan:
    """A group of processes of an attempt whose agent has gone."""

    group: int
    step_id: str
    attempt: int


def marks(step_id: str, attempt: int) -> dict[str, str]:
    """Return what the environment of an attempt's processes says of them."""
    mine = os.getpid()
    return {STEP: step_id, ATTEMPT: str(attempt), AGENT: f"{mine} {start_time(mine) or ''}"}


def orphans() -> list[Orphan]:
    """Return what attempts left running whose agent has gone; nothing where there is no /proc."""
    found: dict[int, Orphan] = {}
    for stat in _all() if (_PROC / "self" / "stat").exists() else ():
        if stat.state == "Z" or stat.group in found or not is_endable(stat.group):
            continue
        marked = _marks_of(stat.id)
        agent_id, _, started = marked.get(AGENT, "").partition(" ")
        attempt = marked.get(ATTEMPT, "")
        if agent_id.isdigit() and attempt.isdigit() and not is_running(int(agent_id), started):
            found[stat.group] = Orphan(stat.group, marked.get(STEP, ""), int(attempt))
    return list(found.values())


def is_left_over(process_id: int, started: str) -> bool:
    """Whether something is left of a command that led a group under this id.

    When the leader itself has ended its members must carry the mark of a step, so that a stranger
    under a reused id is left alone.
    """
    if not is_endable(process_id):
        return False
    now_started = start_time(process_id)
    if now_started is not None:
        return now_started == started
    return any(STEP in _marks_of(stat.id) for stat in _all() if stat.group == process_id)


def is_endable(group_id: int) -> bool:
    """Whether a group may be ended at all: not our own, and not the system's first."""
    return group_id > 1 and group_id != os.getpgrp()


def end_groups(groups: Collection[int], grace_seconds: float = 5.0) -> None:
    """End groups of processes: all asked first, then made to; blocks for the grace time at most."""
    for group in groups:
        signal_group(group, signal.SIGTERM)
    give_up = time.monotonic() + grace_seconds
    while any(map(group_runs, groups)) and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)
    for group in groups:
        signal_group(group, signal.SIGKILL)


def _marks_of(process_id: int) -> dict[str, str]:
    """Return the marks in the environment that a process was started with, if it may be read."""
    try:
        environment = (_PROC / str(process_id) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in environment.split(b"\0"))
    return {
        name.decode(): value.decode(errors="replace")
        for name, _, value in pairs
        if name in (STEP.encode(), ATTEMPT.encode(), AGENT.encode())
    }


def _all() -> Iterator[_Stat]:
    if not (_PROC / "self" / "stat").exists():
        yield from _ask_ps("-A")
        return
    for entry in os.listdir(_PROC):  # noqa: PTH208 - thousands of names, and no paths needed
        if entry.isdigit():
            stat = _read(int(entry))
            if stat is not None:
                yield stat


def _read(process_id: int) -> _Stat | None:
    try:
        text = (_PROC / str(process_id) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        if (_PROC / "self" / "stat").exists():
            return None
        return next(_ask_ps("-p", str(process_id)), None)
    # The name may contain anything, parentheses and spaces too: fields count from its end.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(process_id, fields[0], int(fields[2]), f"{_boot_id()}:{fields[19]}")


def _boot_id() -> str:
    """Name this boot: start times are counted from it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return ""


def _ask_ps(*which: str) -> Iterator[_Stat]:
    """Read processes where there is no /proc."""
    command = ["ps", "-o", "pid=,stat=,pgid=,lstart=", *which]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in answer.stdout.splitlines():
        identity, state, group, started = line.split(None, 3)
        yield _Stat(int(identity), state[0], int(group), started.strip())
