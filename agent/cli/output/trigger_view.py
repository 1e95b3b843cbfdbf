"""Schedules and watchers as text: lists with a strip of fates, and one of them in full."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from agent.cli import invocation
from agent.cli.output import terminal
from agent.cli.output.terminal import print_line

Document = dict[str, Any]

MARKS = {
    "started": "✓",
    "late": "◔",
    "queued": "○",
    "skipped": "–",
    "missed": "✗",
    "baseline": "·",
}
"""One character for each fate of an instant or an item."""

_WHOLE = 4000
"""Where one trigger is shown, its reasons and errors are shown whole."""
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_COUNTED = timedelta(days=9 * 365)
"""The instants of a longer gap may be more than were counted."""
_ALMOST = 0.98
"""A duration this close to a unit counts as one of it."""


def print_schedules(schedules: list[Document]) -> None:
    """Print one line for each schedule."""
    terminal.print_table(
        ("schedule", "when", "next", "last", "fates", "remarks"),
        [
            (
                entry["id"],
                entry["when"],
                when(entry["next_at"], entry["timezone"]),
                when(entry["last_at"], entry["timezone"]),
                strip(entry["recent"]),
                remarks(entry),
            )
            for entry in schedules
        ],
    )
    print_legend()


def print_watchers(watchers: list[Document]) -> None:
    """Print one line for each watcher."""
    terminal.print_table(
        ("watcher", "source", "next poll", "last ok", "last item", "failures", "fates", "remarks"),
        [
            (
                entry["id"],
                f"{entry['source']} {entry['when']}".strip(),
                next_poll(entry),
                terminal.ago(entry["last_ok_at"]) or "never",
                terminal.ago(entry["last_item_at"]) or "never",
                str(entry["failures"]),
                strip(entry["recent"]),
                remarks(entry),
            )
            for entry in watchers
        ],
    )
    print_legend()


def print_triggers(triggers: list[Document]) -> None:
    """Print one line for each schedule and watcher."""
    terminal.print_table(
        ("trigger", "kind", "when", "next", "fates", "remarks"),
        [
            (
                entry["id"],
                "schedule" if entry["kind"] == "schedule" else f"watcher ({entry['source']})",
                entry["when"],
                when(entry["next_at"], entry["timezone"]),
                strip(entry["recent"]),
                remarks(entry),
            )
            for entry in triggers
        ],
    )
    print_legend()


def print_legend() -> None:
    """Print the meaning of the marks of a strip."""
    legend = "  ".join(f"{mark} {status}" for status, mark in MARKS.items())
    print_line(f"fates, the newest last: {legend}", "dim")


def print_trigger(document: Document) -> None:
    """Print everything about a schedule or a watcher."""
    kind = "schedule" if document["kind"] == "schedule" else f"watcher ({document['source']})"
    zone = document["timezone"]
    print_line(f"{document['id']}  {document['status']}", "bold")
    print_line(f"{kind} of workflow {document['workflow']} v{document['version']}")
    if document["when"]:
        print_line(document["when"] + (f"  ({zone})" if document["kind"] == "schedule" else ""))
    if remark := remarks(document, _WHOLE):
        print_line(remark, "yellow")
    if document["kind"] == "schedule":
        _print_upcoming(document["upcoming"], zone)
    else:
        _print_polls(document)
    if document["queued"]:
        print_line(f"queued: {document['queued']}")
    _print_definition(document["definition"])
    print_firings(document["firings"], zone)


def print_firings(firings: list[Document], zone: str) -> None:
    """Print the firings of instants or items, the newest first."""
    if not firings:
        print_line("nothing has come yet")
        return
    terminal.print_table(
        ("", "fate", "instant or item", "task", "recorded", "reason"),
        [
            (
                MARKS[firing["status"]],
                firing["status"],
                _subject(firing, zone),
                terminal.short(firing["task"]),
                terminal.ago(firing["recorded_at"]),
                terminal.one_line(firing["reason"] or "", _WHOLE),
            )
            for firing in firings
        ],
    )


def print_check(document: Document) -> None:
    """Print the items of a poll, and the runs they would start."""
    would = document["would"]
    print_line(
        f"{document['id']}: {document['found']} items, {document['known']} of them known;"
        f" {len(would)} new. Nothing was recorded."
    )
    if document.get("passed_over"):
        text = terminal.one_line(document["passed_over"], _WHOLE)
        print_line(f"passed over what it cannot read: {text}", "yellow")
    if document["is_first"]:
        print_line("it would be the first poll: `first` decides what becomes of the items", "dim")
    if document["status"] == "paused":
        print_line("it is paused: nothing starts, and a resume skips what came meanwhile", "yellow")
        command = f"{invocation.program()} watchers resume {document['id']} --catch-up"
        print_line(f"  {command}   starts tasks for it instead")
    if would:
        terminal.print_table(
            ("", "would be", "item", "reason", "data"),
            [
                (
                    MARKS[entry["fate"]],
                    entry["fate"],
                    terminal.one_line(entry["key"], 40),
                    terminal.one_line(entry["reason"] or "", 40),
                    terminal.one_line(entry["item"], 80),
                )
                for entry in would
            ],
        )
    if document.get("sample"):
        print_line("the newest item, as templates see it:", "dim")
        print_line(terminal.to_json_text(document["sample"]["item"]))


def strip(recent: list[Document]) -> str:
    """Return the latest fates as one mark each, the newest last."""
    return "".join(MARKS[firing["status"]] for firing in reversed(recent))


def remarks(entry: Document, width: int = 100) -> str:
    """Return a remark about a trigger for a list with room for `width` characters."""
    remarks: list[str] = []
    if entry["status"] == "paused":
        until = entry["paused_until"]
        end = f" until {when(until, entry['timezone'])}" if until else ""
        remarks.append(f"paused{end}: {entry['pause_reason']}")
    elif entry["status"] != "active":
        remarks.append(entry["status"])
    elif entry["kind"] == "schedule" and entry["next_at"] is None:
        remarks.append("over: it has no further instant")
    if entry["problem"]:
        remarks.append(f"problem: {terminal.one_line(entry['problem'], width)}")
    if entry.get("alert") == "silent":
        remarks.append("silent: nothing new for longer than `expect_every`")
    elif entry.get("alert"):
        remarks.append(entry["alert"])
    if entry.get("last_error"):
        remarks.append(terminal.one_line(entry["last_error"], width))
    return "; ".join(remarks)


def when(instant: str | None, zone: str) -> str:
    """Return an instant in a zone, with the date unless it is today, and how far away it is.

    The zone is named where its time is not the reader's: one list shows schedules of several.
    """
    if instant is None:
        return ""
    moment = datetime.fromisoformat(instant)
    now = datetime.now(UTC)
    local, today = (time.astimezone(_zone(zone)) for time in (moment, now))
    clock = local.strftime("%H:%M" if local.second == 0 else "%H:%M:%S")
    text = clock if local.date() == today.date() else f"{local.date().isoformat()} {clock}"
    if local.utcoffset() != moment.astimezone().utcoffset():
        text += f" {local:%Z}"
    return f"{text} ({distance((moment - now).total_seconds())})"


def next_poll(entry: Document) -> str:
    """Return when a watcher polls next; one whose time has come polls now, or is about to."""
    if entry["next_at"] and datetime.fromisoformat(entry["next_at"]) <= datetime.now(UTC):
        return "now"
    return when(entry["next_at"], entry["timezone"])


def distance(seconds: float) -> str:
    """Return how far away an instant is, in its largest unit: `in 3 h`, `2 d ago`."""
    number, unit = next(
        (
            (round(abs(seconds) / size), unit)
            for size, unit in _UNITS
            if abs(seconds) >= size * _ALMOST
        ),
        (0, "s"),
    )
    if number == 0:
        return "now"
    return f"in {number} {unit}" if seconds > 0 else f"{number} {unit} ago"


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        # The zone of a machine without a zone file, or of another machine: shown in local time.
        return None


def _subject(firing: Document, zone: str) -> str:
    """Return the instant, the range of instants, or the key of an item."""
    if firing["nominal_at"] is None:
        return terminal.one_line(firing["key"], 60)
    text = when(firing["nominal_at"], zone)
    if firing["until_at"] in (None, firing["nominal_at"]):
        return text
    first, last = (datetime.fromisoformat(firing[name]) for name in ("nominal_at", "until_at"))
    number = f"{firing['count']:,}"
    if last - first > _COUNTED:
        number = f"at least {number}"
    return f"{text} to {when(firing['until_at'], zone)}: {number} instants"


def _print_upcoming(upcoming: list[str], zone: str) -> None:
    if upcoming:
        print_line("next: " + ", ".join(when(instant, zone) for instant in upcoming))
    else:
        print_line("next: none")


def _print_definition(definition: Document) -> None:
    # Lists need neither it nor the language of workflow files.
    from agent.cli.output import definition_lines

    print_line("definition:", "dim")
    for line in definition_lines.lines_of(definition):
        print_line(f"  {line[:_WHOLE]}", "dim")


def _print_polls(document: Document) -> None:
    print_line(
        f"polls: {document['polls']}, failures in a row: {document['failures']},"
        f" last ok {terminal.ago(document['last_ok_at']) or 'never'},"
        f" last item {terminal.ago(document['last_item_at']) or 'never'},"
        f" next poll {next_poll(document) or 'none'}"
    )
