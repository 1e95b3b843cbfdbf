from datetime import datetime

import pytest

from agent.core.clock import SECOND, to_iso
from agent.triggers.local_time import zone_name
from agent.triggers.schedules.schedule_remarks import Preview, preview_triggers
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph, Step

NOW = int(datetime.fromisoformat("2027-01-15T12:00Z").timestamp()) * SECOND
NO_ID = "an id would keep its history when its times are edited"


def _graph(on: str, more: str = "") -> Graph:
    return compile_text(f"name: flow\n{more}steps: {{a: {{wait: 1ms}}}}\non: {on}\n")


def _preview(on: str, more: str = "", missing: tuple[str, ...] = ()) -> Preview:
    (preview,) = preview_triggers(_graph(on, more), NOW, lambda module: module not in missing)
    return preview


def _remarks(schedule: str, more: str = "") -> list[str]:
    on = f"{{schedule: {{id: job, timezone: Europe/Berlin, {schedule}}}}}"
    return _preview(on, more).remarks


def test_a_schedule_shows_its_next_five_instants() -> None:
    """In its own zone, without the jitter."""
    preview = _preview("{schedule: {cron: '0 8 * * 1-5', timezone: America/New_York, jitter: 1h}}")
    assert [to_iso(instant) for instant in preview.instants] == [
        "2027-01-15T13:00:00.000Z",
        "2027-01-18T13:00:00.000Z",
        "2027-01-19T13:00:00.000Z",
        "2027-01-20T13:00:00.000Z",
        "2027-01-21T13:00:00.000Z",
    ]
    assert preview.zone is not None
    assert zone_name(preview.zone) == "America/New_York"
    assert preview.jitter_seconds == 3600
    assert preview.label == "0 8 * * 1-5"
    assert preview.remarks == [NO_ID]


@pytest.mark.parametrize(
    ("schedule", "label"),
    [
        ("{every: 90m}", "every 1h30m"),
        ("{at: 2027-02-01}", "at 2027-02-01"),
        ("{at: [2027-02-01, 2027-03-01, 2027-04-01]}", "at 2027-02-01 and 2 more"),
        ("{every: 90m, id: job}", "job"),
    ],
)
def test_a_schedule_is_named_by_its_id_or_its_times(schedule: str, label: str) -> None:
    """The hash that identifies it in the database says nothing to people."""
    assert _preview(f"{{schedule: {schedule}}}").label == label


@pytest.mark.parametrize(
    ("schedule", "remark"),
    [
        ("cron: '30 2 * * *'", "2027-03-28 02:30 does not exist in Europe/Berlin, where clocks are set forward: it runs at 03:00"),
        ("cron: '*/20 2 * * *'", "2027-03-28 02:00 does not exist in Europe/Berlin, where clocks are set forward: no run then"),
        ("at: 2027-03-28T02:15", "2027-03-28 02:15 does not exist in Europe/Berlin, where clocks are set forward: it runs at 03:00"),
        ("at: 2027-01-01T08:00", "2027-01-01T08:00 is in the past and will not run"),
        ("at: [2027-01-01, 2027-01-02, 2027-01-03, 2027-01-04, 2028-01-01]", "2027-01-01, 2027-01-02, 2027-01-03 and 1 more are in the past and will not run"),
        ("cron: '0 8 * * *', end: 2027-01-01", "it never runs: it has no instant from now on"),
        ("cron: '0 8 29 2 *'", "it does not run within a year: the next instant is on 2028-02-29"),
    ],
)  # fmt: skip
def test_what_may_surprise_is_remarked(schedule: str, remark: str) -> None:
    """Times that a change of clocks skips, times in the past, schedules that hardly ever run."""
    assert remark in _remarks(schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        "cron: '0 8 * * *'",
        "cron: '30 * * * *'",
        "cron: '*/5 * * * *'",
        "cron: '30 2 * * 1-5'",
        "cron: '30 2 * * *', end: 2027-03-01",
        "cron: '30 2 * * *', start: 2027-05-01",
        "cron: '30 2 29 * *'",
        "at: 2027-03-28T02:15+01:00",
        "every: 1h",
    ],
)
def test_nothing_is_remarked_of_what_runs_as_written(schedule: str) -> None:
    """No instant of these falls into a gap, and all run soon."""
    assert _remarks(schedule) == []


@pytest.mark.parametrize(
    ("schedule", "fate"),
    [
        ("every: 5m", "overlap: skip, such a run is skipped"),
        (
            "cron: '*/5 9-17 * * *', overlap: queue",
            "overlap: queue, one such run waits for its end",
        ),
        ("every: 5m, overlap: queue_all", "overlap: queue_all, such runs wait for its end"),
    ],
)
def test_runs_that_come_before_the_timeout_are_remarked(schedule: str, fate: str) -> None:
    """The shortest time between two instants counts, and what becomes of the later one."""
    assert _remarks(schedule, "timeout: 10m\n") == [
        "runs can be due while the last one is open: every 5m, and a task may take 10m (timeout);"
        f" with {fate}"
    ]
    assert _remarks(schedule) == []
    assert _remarks(schedule, "timeout: 5m\n") == []


def test_runs_that_may_overlap_are_not_remarked() -> None:
    """Their author has decided that they run beside each other, or replace each other."""
    for overlap in ("allow", "cancel_other"):
        assert _remarks(f"every: 5m, overlap: {overlap}", "timeout: 10m\n") == []


@pytest.mark.parametrize(
    ("source", "missing", "remark"),
    [
        ("feed: 'https://x'", "feedparser", "it needs the package feedparser, which is not installed: `python -m pip install feedparser`"),
        ("url: {url: 'https://x', select: h1}", "selectolax", "it needs the package selectolax, which is not installed: `python -m pip install selectolax`"),
        ("url: {url: 'https://x', jmespath: a}", "jmespath", "it needs the package jmespath, which is not installed: `python -m pip install jmespath`"),
        ("url: 'https://x'", "selectolax", "it needs the package selectolax if this is an HTML page: `python -m pip install selectolax`"),
        ("path: /tmp", "watchfiles", "without the package watchfiles it notices changes only when it polls: `python -m pip install watchfiles`"),
        ("mail: {host: h, user: u, password: 'env:X'}", "imap_tools", "it needs the package imap-tools, which is not installed: `python -m pip install imap-tools`"),
        ("calendar: 'https://x'", "recurring_ical_events", "it needs the package recurring-ical-events, which is not installed: `python -m pip install recurring-ical-events`"),
    ],
)  # fmt: skip
def test_a_missing_library_of_a_watcher_is_remarked(source: str, missing: str, remark: str) -> None:
    """The remark names the package, not one of ours."""
    on = f"{{watch: {{id: it, {source}}}}}"
    assert _preview(on, missing=(missing,)).remarks == [remark]
    assert _preview(on).remarks == []


def test_a_watcher_without_an_id_is_remarked() -> None:
    """An edit of its source would make it a new one, with a new baseline."""
    preview = _preview("{watch: {command: [ls]}}")
    assert preview.label == "command"
    assert preview.remarks == ["an id would keep its history when its source is edited"]


def test_a_definition_that_cannot_be_read_is_remarked() -> None:
    """A graph that was built in Python may hold anything; the check goes on with the others."""
    graph = Graph(
        name="built",
        steps=[Step(name="a", kind="wait", config={"duration": "1s"})],
        on={
            "schedule": [{"id": "odd", "cron": "61 * * * *"}, {"id": "even", "every_seconds": 60.0}]
        },
    )
    odd, even = preview_triggers(graph, NOW)
    assert "it could not be checked further: CronSimError" in odd.remarks[0]
    assert len(even.instants) == 5
