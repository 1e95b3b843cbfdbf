"""`/schedules` and `/watchers` in chats: the commands of `agent schedules` and `agent watchers`."""

import json
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from agent.approvals.permission import Principal, check_scope
from agent.channels.chat.commands import Command, CommandError, usage
from agent.channels.chat.message_texts import cut
from agent.core.clock import SECOND
from agent.core.local_zone import machine_zone
from agent.core.logs import audit
from agent.steps.types.outcome import Json
from agent.store.db.database import Database
from agent.tasks.errors import RefusedError
from agent.tasks.read_models.task_documents import short_id
from agent.triggers import documents
from agent.triggers.commands.command_request import TriggerRequest, perform
from agent.triggers.commands.trigger_commands import TriggerCommands
from agent.triggers.local_time import shown_time, zone_name

CheckWatcher = Callable[[str], dict[str, Json]]
"""Polls the watcher of an id and returns what would follow."""

KINDS: Final = {"schedules": "schedule", "watchers": "watch"}
MARKS: Final = {
    "started": "✓",
    "late": "◔",
    "queued": "○",
    "skipped": "–",
    "missed": "✗",
    "baseline": "·",
}
_MAX_LISTED: Final = 30
_MAX_FIRINGS: Final = 10
_MAX_LENGTH: Final = 3500
_MAX_KEY: Final = 60
_MAX_ITEM: Final = 300
_CATCH_UP: Final = ("catch-up", "--catch-up")
_DRY_RUN: Final = ("dry-run", "--dry-run")
_FORMS: Final = {
    "pause": "NAME [UNTIL]",
    "resume": "NAME [catch-up]",
    "backfill": "NAME FROM [TO] [dry-run]",
}
"""The commands that take more than a name."""


def _request(verb: str, words: list[str], key: str | None) -> TriggerRequest | None:
    """Return what a message asks for after the name; None if it is not written so."""
    if verb == "pause":
        return TriggerRequest("pause", until=" ".join(words) or None)
    if verb == "resume" and (not words or (len(words) == 1 and words[0] in _CATCH_UP)):
        return TriggerRequest("resume", catch_up=bool(words))
    if verb == "backfill":
        times = [word for word in words if word not in _DRY_RUN]
        if not 1 <= len(times) <= 2 or len(words) - len(times) > 1:
            return None
        last = times[1] if len(times) == 2 else None
        is_dry = len(times) < len(words)
        return TriggerRequest("backfill", first=times[0], last=last, dry_run=is_dry)
    if words:
        return None
    if verb == "run":
        return TriggerRequest("run", request_key=key)
    if verb == "skip":
        return TriggerRequest("skip", request_key=key)
    return TriggerRequest("reset") if verb == "reset" else None


class ChatTriggers:
    """Runs the commands on triggers for a caller that the channel has identified."""

    def __init__(self, database: Database, check_watcher: CheckWatcher | None = None) -> None:
        """Set up the commands; `check_watcher` polls for `/watchers check`."""
        self._database = database
        self._check_watcher = check_watcher
        self._commands = TriggerCommands(database, database.clock)

    def reply(self, principal: Principal, command: Command, key: str | None) -> str:
        """Run a command and return the reply; changing a trigger needs the scope `operate`."""
        kind = KINDS[command.name]
        verb, (name, *words) = command.subject, ((command.rest or "").split() or [""])
        if verb in (None, "list"):
            return self._list(kind)
        if verb == "show" and name:
            return self._show(name, kind)
        if verb == "check" and name and not words:
            check_scope(principal, "operate", f"/{command.name} {verb}")
            return self._check(principal, name, kind)
        request_key = None if key is None else f"{principal.channel}:{key}"
        request = _request(verb, words, request_key) if verb and name else None
        if request is None:
            form = (
                f"/{command.name} {verb} {_FORMS[verb]}" if verb in _FORMS else usage(command.name)
            )
            raise CommandError(f"write it as {form}")
        check_scope(principal, "operate", f"/{command.name} {verb}")
        return self._change(principal, name, kind, request)

    def _list(self, kind: str) -> str:
        now = self._database.clock.now()
        with self._database.connect("reader") as connection, connection.snapshot():
            triggers = documents.trigger_list(connection, kind, now=now, most=_MAX_LISTED)
        what = "schedules" if kind == "schedule" else "watchers"
        return "\n".join(map(_line, triggers)) or f"no {what}"

    def _show(self, name: str, kind: str) -> str:
        row = self._commands.find(name, kind)
        with self._database.connect("reader") as connection, connection.snapshot():
            document = documents.trigger_document(connection, row, self._database.clock.now())
        return _shown(document)

    def _change(self, principal: Principal, name: str, kind: str, request: TriggerRequest) -> str:
        who = f"{principal.channel}:{principal.identity}"
        what = f"{request.verb} trigger"
        with audit.recorded(who, principal.channel, what, trigger=name):
            row = self._commands.find(name, kind)
            result = perform(self._commands, row.id, request, self._database.clock.now())
        message = result.message
        for task_id in result.tasks:
            message = message.replace(task_id, f"task {short_id(task_id)}")
        lines = [f"{row.id}: {message}"]
        if request.verb == "backfill":
            zone = zone_name(documents.zone_of(row))
            lines += [_local(instant, zone) for instant in result.instants]
        return cut("\n".join(lines), _MAX_LENGTH)

    def _check(self, principal: Principal, name: str, kind: str) -> str:
        if self._check_watcher is None:
            raise RefusedError("this process polls no watchers: use `agent watchers check`")
        who = f"{principal.channel}:{principal.identity}"
        with audit.recorded(who, principal.channel, "check trigger", trigger=name):
            document = self._check_watcher(self._commands.find(name, kind).id)
        return _checked(document)


def _line(document: dict[str, Json]) -> str:
    """Return a trigger as one line: its fates, when it is due, and what is wrong."""
    strip = "".join(MARKS[firing["status"]] for firing in reversed(document["recent"]))
    due = document["next_at"]
    next_time = f"next {_local(due, document['timezone'])}" if due else ""
    parts = [document["id"], strip, next_time, _state(document)]
    return "  ".join(part for part in parts if part)


def _local(instant: str, name: str) -> str:
    """Return an instant of a document in the zone of its trigger, to the second."""
    try:
        zone: tzinfo = ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        # The zone of a machine without a zone file.
        zone = machine_zone()
    return shown_time(int(datetime.fromisoformat(instant).timestamp()) * SECOND, zone)


def _state(document: dict[str, Json]) -> str:
    if document["status"] == "paused":
        end = document["paused_until"]
        until = f" until {_local(end, document['timezone'])}" if end else ""
        return f"paused{until}: {document['pause_reason']}"
    state = "" if document["status"] == "active" else str(document["status"])
    problem = document["problem"] or document.get("last_error") or ""
    return ": ".join(part for part in (state, problem) if part)


def _shown(document: dict[str, Json]) -> str:
    """Return a trigger with its next instants and its latest fates."""
    timing, zone = document["when"], document["timezone"]
    if document["kind"] == "schedule":
        timing = f"{timing} ({zone})"
    lines = [_line(document), timing]
    lines += [f"next: {_local(instant, zone)}" for instant in document["upcoming"][1:]]
    for firing in document["firings"][:_MAX_FIRINGS]:
        task = f" task {short_id(firing['task'])}" if firing["task"] else ""
        reason = f" ({firing['reason']})" if firing["reason"] else ""
        mark = MARKS[firing["status"]]
        subject = _subject(firing, zone)
        lines.append(f"{mark} {firing['status']} {subject}{task}{reason}")
    return cut("\n".join(lines), _MAX_LENGTH)


def _subject(firing: dict[str, Json], zone: str) -> str:
    """Return the instant, the range of instants, or the key of an item."""
    first, last = firing["nominal_at"], firing["until_at"]
    if first is None:
        return cut(str(firing["key"]), _MAX_KEY)
    text = _local(first, zone)
    return text if last in (None, first) else f"{text} to {_local(last, zone)}"


def _checked(document: dict[str, Json]) -> str:
    """Return what a poll found, and what would follow."""
    found, would = document["found"], document["would"]
    lines = [f"{document['id']}: {found} found, {document['known']} known, {len(would)} new"]
    if document["status"] == "paused":
        lines.append("It is paused: nothing starts, and a resume skips what came meanwhile.")
    if document["passed_over"]:
        lines.append(f"Passed over what it cannot read: {cut(document['passed_over'], _MAX_KEY)}")
    for entry in would[:_MAX_FIRINGS]:
        reason = f" ({entry['reason']})" if entry["reason"] else ""
        lines.append(
            f"{MARKS[entry['fate']]} {entry['fate']} {cut(entry['key'], _MAX_KEY)}{reason}"
        )
    if document["sample"]:
        item = json.dumps(document["sample"]["item"], ensure_ascii=False)
        lines.append(f"the newest item: {cut(item, _MAX_ITEM)}")
    return cut("\n".join(lines), _MAX_LENGTH)
