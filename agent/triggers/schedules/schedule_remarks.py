"""The remarks of `agent validate` on schedules and watchers: the next instants, and likely mistakes.

Everything here is a function of a workflow and the current instant; remarks are advice, never errors.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any, Final

from agent.core.clock import SECOND
from agent.triggers.local_time import (
    DAY_US,
    first_instant,
    next_offset_change,
    offsets_of,
    parse_time,
    to_local,
    zone_name,
)
from agent.triggers.schedules.cron import Cron
from agent.triggers.schedules.instants import Timing
from agent.triggers.specs import SCHEDULE, TriggerSpec, triggers_of
from agent.triggers.watchers.registry import source_name
from agent.workflows.durations import format_duration
from agent.workflows.graph import Graph

Json = Any

_SHOWN_INSTANTS: Final = 5
_SHOWN_TIMES: Final = 3
_COMPARED_INSTANTS: Final = 100
"""How many coming instants are compared to find the shortest time between two."""
_YEAR_US: Final = 365 * DAY_US

_AFTER_OVERLAP: Final = {
    "skip": "such a run is skipped",
    "queue": "one such run waits for its end",
    "queue_all": "such runs wait for its end",
}


@dataclass(frozen=True, slots=True)
class Preview:
    """One schedule or watcher of a workflow, as it will be."""

    trigger_id: str
    kind: str
    label: str
    """Its `id`, else its times or its source, for people."""
    now_us: int
    zone: tzinfo | None = None
    """Of a schedule."""
    instants: list[int] = field(default_factory=list)
    """The next five of a schedule, without jitter."""
    jitter_seconds: float | None = None
    remarks: list[str] = field(default_factory=list)


def preview_triggers(
    graph: Graph, now_us: int, is_installed: Callable[[str], bool] | None = None
) -> list[Preview]:
    """Return every schedule and watcher of a workflow, with remarks.

    A schedule with `every` and without `start` counts from now: its anchor is not recorded yet.
    `is_installed` answers for modules; the default asks this Python.
    """
    previews = []
    for trigger in triggers_of(graph):
        try:
            if trigger.kind == SCHEDULE:
                preview = _schedule(graph, trigger, now_us)
            else:
                preview = _watcher(trigger, now_us, is_installed or _is_installed)
        except Exception as error:
            # A workflow in Python may define anything, and remarks are advice.
            remark = f"it could not be checked further: {type(error).__name__}: {error}"
            preview = Preview(trigger.id, trigger.kind, trigger.name, now_us, remarks=[remark])
        previews.append(preview)
    return previews


def _schedule(graph: Graph, trigger: TriggerSpec, now_us: int) -> Preview:
    spec = trigger.spec
    timing = Timing.of(spec, now_us, trigger.id)
    instants = _upcoming(timing, now_us, _COMPARED_INSTANTS)
    return Preview(
        trigger.id,
        trigger.kind,
        _label(spec),
        now_us,
        timing.zone,
        instants[:_SHOWN_INSTANTS],
        spec.get("jitter_seconds"),
        [
            *_about_past(spec, timing, now_us),
            *_about_rarity(instants, timing, now_us),
            *_about_gap(spec, timing, now_us),
            *_about_overlap(graph, spec, instants),
            *_about_id(spec, "its times are"),
        ],
    )


def _upcoming(timing: Timing, now_us: int, most: int) -> list[int]:
    instants: list[int] = []
    instant = timing.next_after(now_us)
    while instant is not None and len(instants) < most:
        instants.append(instant)
        instant = timing.next_after(instant)
    return instants


def _label(spec: dict[str, Json]) -> str:
    if "id" in spec:
        return str(spec["id"])
    if "cron" in spec:
        return str(spec["cron"])
    if "every_seconds" in spec:
        return f"every {format_duration(spec['every_seconds'])}"
    more = len(spec["at"]) - 1
    return f"at {spec['at'][0]}" + (f" and {more} more" if more else "")


def _about_past(spec: dict[str, Json], timing: Timing, now_us: int) -> Iterator[str]:
    """Remark on times that have passed: they start nothing."""
    past = [text for text in spec.get("at", []) if parse_time(text, timing.zone) <= now_us]
    if past:
        more = f" and {len(past) - _SHOWN_TIMES} more" if len(past) > _SHOWN_TIMES else ""
        verb = "is" if len(past) == 1 else "are"
        yield f"{', '.join(past[:_SHOWN_TIMES])}{more} {verb} in the past and will not run"


def _about_rarity(instants: list[int], timing: Timing, now_us: int) -> Iterator[str]:
    if not instants:
        yield "it never runs: it has no instant from now on"
    elif instants[0] > now_us + _YEAR_US:
        day = to_local(instants[0], timing.zone).date()
        yield f"it does not run within a year: the next instant is on {day}"


def _about_gap(spec: dict[str, Json], timing: Timing, now_us: int) -> Iterator[str]:
    """Remark on the first local time of the coming year that a change of the clock skips."""
    skipped = next(_skipped_times(spec, timing, now_us), None)
    if skipped is None:
        return
    instant = first_instant(skipped, timing.zone)
    runs_then = timing.next_after(instant - 1) == instant
    fate = f"it runs at {to_local(instant, timing.zone):%H:%M}" if runs_then else "no run then"
    yield (
        f"{skipped:%Y-%m-%d %H:%M} does not exist in {zone_name(timing.zone)}, where clocks are set"
        f" forward: {fate}"
    )


def _skipped_times(spec: dict[str, Json], timing: Timing, now_us: int) -> Iterator[datetime]:
    end_us = now_us + _YEAR_US
    for text in spec.get("at", []):
        local = datetime.fromisoformat(text)
        if local.tzinfo is None:
            before, after = offsets_of(local, timing.zone)
            if before < after and now_us < parse_time(text, timing.zone) <= end_us:
                yield local
    # An expression for every hour misses none: it runs as often as before.
    if "cron" not in spec or spec["cron"].split()[1] == "*":
        return
    cron = Cron(spec["cron"], timing.zone)
    change_us = next_offset_change(now_us, end_us, timing.zone)
    while change_us is not None:
        last_before, gap_end = (
            to_local(instant, timing.zone).replace(tzinfo=None)
            for instant in (change_us - 1, change_us)
        )
        match = cron.next_local(last_before)
        if match is not None and match < gap_end and timing.is_within_bounds(change_us):
            yield match
        change_us = next_offset_change(change_us, end_us, timing.zone)


def _about_overlap(graph: Graph, spec: dict[str, Json], instants: list[int]) -> Iterator[str]:
    """Remark on instants that come sooner than the workflow's timeout ends a task."""
    timeout, fate = graph.timeout_seconds, _AFTER_OVERLAP.get(spec.get("overlap", ""))
    if timeout is None or fate is None or len(instants) < 2:
        return
    shortest = min(later - earlier for earlier, later in pairwise(instants)) / SECOND
    if shortest < timeout:
        yield (
            f"runs can be due while the last one is open: every {format_duration(shortest)}, and a"
            f" task may take {format_duration(timeout)} (timeout); with overlap: {spec['overlap']},"
            f" {fate}"
        )


def _about_id(spec: dict[str, Json], edited: str) -> Iterator[str]:
    if "id" not in spec:
        yield f"an id would keep its history when {edited} edited"


def _watcher(trigger: TriggerSpec, now_us: int, is_installed: Callable[[str], bool]) -> Preview:
    source = source_name(trigger.spec)
    label = str(trigger.spec.get("id") or source)
    remarks = [
        f"{need} `python -m pip install {package}`"
        for module, package, need in _libraries(source, trigger.spec[source])
        if not is_installed(module)
    ]
    return Preview(
        trigger.id,
        trigger.kind,
        label,
        now_us,
        remarks=[*remarks, *_about_id(trigger.spec, "its source is")],
    )


def _libraries(source: str, keys: dict[str, Json]) -> Iterator[tuple[str, str, str]]:
    """Return the libraries of a source: module, package, and purpose."""
    if source == "feed":
        yield "feedparser", "feedparser", _needs("feedparser")
    elif source == "url":
        if "jmespath" in keys:
            yield "jmespath", "jmespath", _needs("jmespath")
        elif "select" in keys:
            yield "selectolax", "selectolax", _needs("selectolax")
        elif "pattern" not in keys:
            need = "it needs the package selectolax if this is an HTML page:"
            yield "selectolax", "selectolax", need
    elif source == "path" and not keys.get("poll"):
        need = "without the package watchfiles it notices changes only when it polls:"
        yield "watchfiles", "watchfiles", need
    elif source == "mail":
        yield "imap_tools", "imap-tools", _needs("imap-tools")
    elif source == "calendar":
        for package in ("icalendar", "recurring-ical-events"):
            yield package.replace("-", "_"), package, _needs(package)


def _needs(package: str) -> str:
    return f"it needs the package {package}, which is not installed:"


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
