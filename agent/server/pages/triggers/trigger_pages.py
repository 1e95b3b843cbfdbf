"""Schedules and watchers: their firings, their next times, and commands on them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agent.core.clock import Clock
from agent.server.context import context_of
from agent.server.pages.forms.schema_form import read_number
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.pages.framework.sent_forms import key_of
from agent.server.pages.framework.templates import duration
from agent.server.problems import Problem
from agent.store.db.database import Connection, Database
from agent.tasks.errors import RefusedError
from agent.triggers import documents
from agent.triggers.commands.command_plan import TriggerResult
from agent.triggers.commands.command_request import (
    InvalidTimeError,
    TriggerRequest,
    TriggerVerb,
    perform,
)
from agent.triggers.commands.trigger_commands import TriggerCommands

Document = dict[str, Any]

pages = PageRegistry("triggers")

EVERY_SECONDS: Final = 20
"""Values that change without an event: the next instant, the last poll."""
_PAGE: Final = 25
_FIRINGS: Final = 30
_MOST_INSTANTS: Final = 50
_LABELS: Final = {"timezone": "Time zone", "most": "At most"}
_FILTERS: Final[dict[str, dict[str, str]]] = {
    "": {},
    "schedules": {"kind": "schedule"},
    "watchers": {"kind": "watch"},
    "paused": {"status": "paused"},
    "broken": {"status": "broken"},
    "removed": {"status": "removed"},
}


@pages.page("/triggers", "triggers.html", every_seconds=EVERY_SECONDS)
def trigger_list(connection: Connection, request: PageRequest) -> Document:
    """Return a page of triggers with the fates of their latest instants or items."""
    chosen = request.query.get("show", "")
    triggers = documents.trigger_list(
        connection,
        now=request.context.database.clock.now(),
        after=request.query.get("cursor"),
        most=_PAGE + 1,
        workflow=request.query.get("workflow"),
        **_FILTERS.get(chosen, {}),
    )
    has_more = len(triggers) > _PAGE
    shown = triggers[:_PAGE]
    return {
        "triggers": shown,
        "filters": [
            (name, request.url(show=name, cursor=None), name == chosen) for name in _FILTERS
        ],
        "is_filtered": bool(chosen or request.query.get("workflow")),
        "first": request.url(cursor=None) if "cursor" in request.query else None,
        "next": request.url(cursor=shown[-1]["id"]) if has_more else None,
    }


@pages.page("/triggers/{trigger_id}", "trigger.html", every_seconds=EVERY_SECONDS)
def trigger_page(connection: Connection, request: PageRequest) -> Document:
    """Return a schedule or a watcher with its latest firings, and a dry run that was asked for."""
    trigger_id = request.params["trigger_id"]
    database = request.context.database
    row = documents.find_row(connection, trigger_id)
    trigger = documents.trigger_document(connection, row, database.clock.now())
    firings, following = documents.firings_page(
        connection, trigger_id, _FIRINGS, request.query.get("cursor")
    )
    return {
        "trigger": trigger,
        "definition": _definition(trigger["definition"]),
        "firings": firings,
        "is_first_page": "cursor" not in request.query,
        "next": request.url(cursor=following) if following else None,
        "backfill": _dry_run(database, trigger_id, request.query),
    }


def _definition(definition: Document) -> list[tuple[str, Any]]:
    """Return the keys of a definition that say something, in words; durations with their units."""
    lines: list[tuple[str, Any]] = []
    for name, value in definition.items():
        if isinstance(value, dict):
            value = {key: each for key, each in value.items() if not _is_empty(each)}
            value = next(iter(value.values())) if list(value) in (["url"], ["path"]) else value
        if name == "id" or _is_empty(value):
            continue
        if name.endswith("_seconds") and isinstance(value, int | float):
            name, value = name.removesuffix("_seconds"), duration(value)
        label = _LABELS.get(name, name.replace("_", " ").capitalize())
        lines.append((label, "yes" if value is True else value))
    return lines


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ("", {}, [])


def _dry_run(database: Database, trigger_id: str, query: Mapping[str, str]) -> Document | None:
    """Return the instants that a backfill would run, or why it cannot be."""
    if not query.get("from"):
        return None
    span = {name: query.get(name, "") for name in ("from", "to", "most")}
    try:
        result = _perform(database, trigger_id, _backfill(span, dry_run=True))
    except (RefusedError, InvalidTimeError, Problem) as error:
        detail = error.detail if isinstance(error, Problem) else error
        return {"asked": span, "problem": str(detail), "instants": [], "message": ""}
    return {
        "asked": span,
        "problem": None,
        "instants": result.instants[:_MOST_INSTANTS],
        "left_out": max(0, len(result.instants) - _MOST_INSTANTS),
        "message": result.message,
    }


def _backfill(form: Mapping[str, str], *, dry_run: bool) -> TriggerRequest:
    return TriggerRequest(
        "backfill",
        first=form.get("from") or None,
        last=form.get("to") or None,
        most=_most(form.get("most", "").strip()),
        dry_run=dry_run,
    )


def _most(text: str) -> int | None:
    if not text:
        return None
    with suppress(ValueError):
        number = read_number(text, is_whole=True)
        if 1 <= number <= 10_000:
            return int(number)
    raise Problem(422, "invalid", f"at most must be a number from 1 to 10,000, and is {text!r}")


@pages.action("/triggers/{trigger_id}/pause", scope="operate")
async def pause_trigger(request: Request, form: Form) -> Response:
    """Pause a trigger, until a time if one is given."""
    until, reason = form.get("until") or None, form.get("reason") or None
    return await _give(request, form, TriggerRequest("pause", until=until, reason=reason))


@pages.action("/triggers/{trigger_id}/resume", scope="operate")
async def resume_trigger(request: Request, form: Form) -> Response:
    """Resume a trigger, with or without the firings of the pause."""
    return await _give(request, form, TriggerRequest("resume", catch_up="catch_up" in form))


@pages.action("/triggers/{trigger_id}/run", scope="operate")
async def run_trigger(request: Request, form: Form) -> Response:
    """Start a task of a schedule now, or let a watcher poll now."""
    return await _simple(request, form, "run")


@pages.action("/triggers/{trigger_id}/skip", scope="operate")
async def skip_trigger(request: Request, form: Form) -> Response:
    """Skip the next instant of a schedule."""
    return await _simple(request, form, "skip")


@pages.action("/triggers/{trigger_id}/reset", scope="operate")
async def reset_trigger(request: Request, form: Form) -> Response:
    """Make the next poll of a watcher a first one."""
    return await _simple(request, form, "reset")


@pages.action("/triggers/{trigger_id}/backfill", scope="operate")
async def backfill_trigger(request: Request, form: Form) -> Response:
    """Queue runs for instants of the past."""
    return await _give(request, form, _backfill(form, dry_run=False))


@pages.action("/triggers/{trigger_id}/check", scope="operate")
async def check_trigger(request: Request, form: Form) -> Response:
    """Poll a watcher, record nothing, and show the runs it would start."""
    trigger_id = request.path_params["trigger_id"]
    try:
        check = await context_of(request).watcher_checks.check(trigger_id)
    except Exception as error:
        return await rendering.respond_again(request, trigger_page, form, error)
    return rendering.render(request, "trigger_check.html", {"check": check})


async def _simple(request: Request, form: Form, verb: TriggerVerb) -> Response:
    key = key_of(request, form)
    return await _give(request, form, TriggerRequest(verb, request_key=key))


async def _give(request: Request, form: Form, command: TriggerRequest) -> Response:
    """Run a command and show the trigger again, with the result or the refusal."""
    trigger_id = request.path_params["trigger_id"]
    context = context_of(request)
    try:
        result = await context.command_pool.run(
            lambda: _perform(context.database, trigger_id, command)
        )
    except Exception as error:
        return await rendering.respond_again(request, trigger_page, form, error)
    path = rendering.back_of(form) if "back" in form else rendering.path_of("triggers", trigger_id)
    return rendering.redirect(request, path, rendering.sentence(result.message))


def _perform(database: Database, trigger_id: str, command: TriggerRequest) -> TriggerResult:
    clock: Clock = database.clock
    return perform(TriggerCommands(database, clock), trigger_id, command, clock.now())
