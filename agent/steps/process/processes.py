"""Processes by identity, and the process groups of commands.

The system reuses process ids, so a process is identified by its id and its start time (a text that is
only compared). A step's command leads a session and a process group of its own, so that everything it
starts ends with it. Marks in its environment identify processes that outlive their agent.
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
"""The process that runs the attempt: its id and its start time."""
WATCHER: Final = "AGENT_WATCHER_STARTED_BY"
"""Of the programs that watchers start, and of the commands that print secrets: the process that
started them, its id and its start time."""

_PROC: Final = Path("/proc")
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class _Stat:
    id: int
    state: str
    group: int
    started: str


def start_time(process_id: int) -> str | None:
    """Return a process's start time, as text that no other process with that id shares."""
    stat = _read(process_id)
    return None if stat is None or stat.state == "Z" else stat.started


def is_running(process_id: int, started: str) -> bool:
    """Whether this very process still runs."""
    return start_time(process_id) == started


def is_of_this_boot(started: str) -> bool:
    """Whether a process with this start time ran since this machine was started."""
    boot_id, separator, _ = started.partition(":")
    return bool(separator) and boot_id == _boot_id() != ""


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
    """A process group of an attempt whose agent has ended."""

    group: int
    step_id: str
    attempt: int


def marks(step_id: str, attempt: int) -> dict[str, str]:
    """Return the variables that mark the processes of an attempt."""
    return {STEP: step_id, ATTEMPT: str(attempt), AGENT: _own_identity()}


def is_started_by_engine() -> bool:
    """Whether this process runs, directly or not, for a step or a watcher."""
    return STEP in os.environ or WATCHER in os.environ


def watcher_marks() -> dict[str, str]:
    """Return the variable that marks the programs which a watcher starts."""
    return {WATCHER: _own_identity()}


def watcher_orphans() -> set[int]:
    """Return the groups of watchers' programs whose agent is gone; nothing where there is no /proc.

    A poll changes nothing, and only its agent reads the program's output: such a program may be
    ended whatever database its agent used. Programs of other PID namespaces are left alone, since
    the ids in their marks mean other processes here.
    """
    groups: set[int] = set()
    for stat in _all() if (_PROC / "self" / "stat").exists() else ():
        if stat.state == "Z" or stat.group in groups or not is_endable(stat.group):
            continue
        agent_id, _, started = _marks_of(stat.id).get(WATCHER, "").partition(" ")
        is_orphan = agent_id.isdigit() and not is_running(int(agent_id), started)
        if is_orphan and pid_namespace(stat.id) == pid_namespace(os.getpid()):
            groups.add(stat.group)
    return groups


def orphans() -> list[Orphan]:
    """Return the process groups that outlived their agent; nothing where there is no /proc."""
    orphans_by_group: dict[int, Orphan] = {}
    for stat in _all() if (_PROC / "self" / "stat").exists() else ():
        if stat.state == "Z" or stat.group in orphans_by_group or not is_endable(stat.group):
            continue
        marked = _marks_of(stat.id)
        agent_id, _, started = marked.get(AGENT, "").partition(" ")
        attempt = marked.get(ATTEMPT, "")
        if agent_id.isdigit() and attempt.isdigit() and not is_running(int(agent_id), started):
            orphans_by_group[stat.group] = Orphan(stat.group, marked.get(STEP, ""), int(attempt))
    return list(orphans_by_group.values())


def is_left_over(process_id: int, started: str) -> bool:
    """Whether processes of a command that led the group with this id still run.

    When the leader itself has ended, its members must carry the mark of a step, so that another
    program under a reused id is not ended.
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
    """End process groups: SIGTERM first, then SIGKILL. Blocks for the grace time at most."""
    for group in groups:
        signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while any(map(group_runs, groups)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for group in groups:
        signal_group(group, signal.SIGKILL)


def _marks_of(process_id: int) -> dict[str, str]:
    """Return the marks in a process's environment, if it may be read."""
    try:
        environment = (_PROC / str(process_id) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in environment.split(b"\0"))
    return {
        name.decode(): value.decode(errors="replace")
        for name, _, value in pairs
        if name in (STEP.encode(), ATTEMPT.encode(), AGENT.encode(), WATCHER.encode())
    }


def _own_identity() -> str:
    process_id = os.getpid()
    return f"{process_id} {start_time(process_id) or ''}"


def pid_namespace(process_id: int) -> str:
    """Name the namespace in which a process has its id; empty where that is not known."""
    try:
        return str((_PROC / str(process_id) / "ns" / "pid").readlink())
    except OSError:
        return ""


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
    # The name may contain anything, also parentheses and spaces: fields count from its end.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(process_id, fields[0], int(fields[2]), f"{_boot_id()}:{fields[19]}")


def _boot_id() -> str:
    """Return an id of this boot: start times are counted from it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    except OSError:
        return ""


def _ask_ps(*which: str) -> Iterator[_Stat]:
    """Read processes where there is no /proc."""
    command = ["ps", "-o", "pid=,stat=,pgid=,lstart=", *which]
    ps = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in ps.stdout.splitlines():
        identity, state, group, started = line.split(None, 3)
        yield _Stat(int(identity), state[0], int(group), started.strip())
