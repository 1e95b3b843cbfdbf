"""`/schedules` and `/watchers` in chats: list, show, pause, resume, run and skip."""

from typing import Final, get_args

from agent.approvals.permission import Principal, check_scope
from agent.channels.chat.commands import Command, CommandError, usage
from agent.channels.chat.message_texts import cut
from agent.core.logs import audit
from agent.steps.types.outcome import Json
from agent.store.db.database import Database
from agent.tasks.read_models.task_documents import short_id
from agent.triggers import documents
from agent.triggers.commands.command_request import TriggerRequest, TriggerVerb, perform
from agent.triggers.commands.trigger_commands import TriggerCommands

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
_VERBS: Final = frozenset(get_args(TriggerVerb)) - {"backfill", "reset"}


class ChatTriggers:
    """Runs the commands on triggers for a caller that the channel has identified."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._commands = TriggerCommands(database, database.clock)

    def reply(self, principal: Principal, command: Command, key: str | None) -> str:
        """Run a command and return the reply; changing a trigger needs the scope `operate`."""
        kind = KINDS[command.name]
        verb, (name, *rest) = command.subject, (*(command.rest or "").split(None, 1), "")
        if verb in (None, "list"):
            return self._list(kind)
        if verb == "show" and name:
            return self._show(name, kind)
        for known in _VERBS:
            if verb == known and name:
                check_scope(principal, "operate", f"/{command.name} {verb}")
                until = " ".join(rest).strip() if verb == "pause" else ""
                request = TriggerRequest(
                    known,
                    until=until or None,
                    request_key=None if key is None else f"{principal.channel}:{key}",
                )
                return self._change(principal, name, kind, request)
        raise CommandError(f"write it as {usage(command.name)}")

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
        return f"{row.id}: {message}"


def _line(document: dict[str, Json]) -> str:
    """Return a trigger as one line: its fates, when it is due, and what is wrong."""
    strip = "".join(MARKS[firing["status"]] for firing in reversed(document["recent"]))
    due = document["next_at"]
    parts = [document["id"], strip, f"next {due}" if due else "", _state(document)]
    return "  ".join(part for part in parts if part)


def _state(document: dict[str, Json]) -> str:
    if document["status"] == "paused":
        until = f" until {document['paused_until']}" if document["paused_until"] else ""
        return f"paused{until}: {document['pause_reason']}"
    state = "" if document["status"] == "active" else str(document["status"])
    problem = document["problem"] or document.get("last_error") or ""
    return ": ".join(part for part in (state, problem) if part)


def _shown(document: dict[str, Json]) -> str:
    """Return a trigger with its next instants and its latest fates."""
    lines = [_line(document), f"{document['when']} ({document['timezone']})"]
    lines += [f"next: {instant}" for instant in document["upcoming"][1:]]
    for firing in document["firings"][:_MAX_FIRINGS]:
        task = f" task {short_id(firing['task'])}" if firing["task"] else ""
        reason = f" ({firing['reason']})" if firing["reason"] else ""
        mark = MARKS[firing["status"]]
        lines.append(f"{mark} {firing['status']} {firing['key']}{task}{reason}")
    return cut("\n".join(lines), _MAX_LENGTH)
