"""Schedules and watchers: list, show and control."""

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.core.state_machine import TriggerStatus
from agent.server.context import caller, context_of
from agent.server.idempotency import IdempotencyKey
from agent.server.requests.paging import page
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.triggers import (
    BackfillRequest,
    FiringPage,
    PauseTriggerRequest,
    ResumeTriggerRequest,
    TriggerAnswer,
    TriggerCheck,
    TriggerDocument,
    TriggerList,
)
from agent.store.db.database import Connection
from agent.triggers import documents
from agent.triggers.commands.command_request import TriggerRequest, perform
from agent.triggers.commands.trigger_commands import TriggerCommands

routes = RouteRegistry("triggers")

TriggerId = Annotated[
    str, Path(max_length=500, description="WORKFLOW:NAME", examples=["report:daily"])
]
TriggerKind = Literal["schedule", "watch"]
_REFUSALS = {404: "No such trigger", 409: "Not allowed in this state, or for this kind"}


@routes.route(
    "GET", "/triggers", scope="read", returns=TriggerList, summary="Schedules and watchers"
)
async def list_triggers(
    request: Request,
    kind: Annotated[TriggerKind | None, Query(description="Only triggers of this kind.")] = None,
    workflow: Annotated[
        str | None, Query(description="Only triggers of this workflow.", max_length=200)
    ] = None,
    status: Annotated[
        TriggerStatus | None,
        Query(description="Only triggers with this status; removed ones are not listed otherwise."),
    ] = None,
    cursor: Annotated[
        str | None, Query(description="`next` of the previous page.", max_length=500)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Return a page of triggers by their ids, each with what became of the latest ten."""
    now = context_of(request).database.clock.now()
    triggers = await context_of(request).read_pool.read(
        lambda connection: documents.trigger_list(
            connection,
            kind,
            now=now,
            workflow=workflow,
            status=status,
            after=cursor,
            most=limit + 1,
        )
    )
    return answer(page("triggers", triggers, limit))


@routes.route(
    "GET",
    "/triggers/{trigger_id}",
    scope="read",
    returns=TriggerDocument,
    refuses={404: "No such trigger"},
    summary="Everything about a trigger",
)
async def get_trigger(request: Request, trigger_id: TriggerId) -> Response:
    """Return a schedule or a watcher with its latest firings."""
    now = context_of(request).database.clock.now()

    def read(connection: Connection) -> dict[str, Any]:
        row = documents.find_row(connection, trigger_id)
        return documents.trigger_document(connection, row, now)

    return answer(await context_of(request).read_pool.read(read))


@routes.route(
    "GET",
    "/triggers/{trigger_id}/firings",
    scope="read",
    returns=FiringPage,
    refuses={404: "No such trigger"},
    summary="What became of instants or items",
)
async def list_firings(
    request: Request,
    trigger_id: TriggerId,
    cursor: Annotated[
        str | None, Query(description="`next` of the previous page.", max_length=600)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return a page of firings, the newest first; new ones do not shift pages."""

    def read(connection: Connection) -> tuple[list[dict[str, Any]], str | None]:
        documents.find_row(connection, trigger_id)
        return documents.firings_page(connection, trigger_id, limit, cursor)

    firings, following = await context_of(request).read_pool.read(read)
    return answer({"firings": firings, "next": following})


@routes.route(
    "POST",
    "/triggers/{trigger_id}/pause",
    scope="operate",
    returns=TriggerAnswer,
    refuses=_REFUSALS,
    summary="Pause a trigger",
)
async def pause_trigger(
    request: Request, trigger_id: TriggerId, body: PauseTriggerRequest | None = None
) -> Response:
    """Start nothing by itself, until a time or until it is resumed; queued runs stay queued."""
    body = body or PauseTriggerRequest()
    return await _change(
        request, trigger_id, TriggerRequest("pause", until=body.until, reason=body.reason)
    )


@routes.route(
    "POST",
    "/triggers/{trigger_id}/resume",
    scope="operate",
    returns=TriggerAnswer,
    refuses=_REFUSALS,
    summary="Resume a trigger",
)
async def resume_trigger(
    request: Request, trigger_id: TriggerId, body: ResumeTriggerRequest | None = None
) -> Response:
    """End a pause. What came in it is skipped, unless `catch_up` is given."""
    catch_up = body is not None and body.catch_up
    return await _change(request, trigger_id, TriggerRequest("resume", catch_up=catch_up))


@routes.route(
    "POST",
    "/triggers/{trigger_id}/run",
    scope="operate",
    returns=TriggerAnswer,
    refuses=_REFUSALS,
    summary="Run a trigger now",
)
async def run_trigger(
    request: Request, trigger_id: TriggerId, key: IdempotencyKey = None
) -> Response:
    """Start a task of a schedule now, beside others of it; or let a watcher poll now."""
    request_key = await _request_key(request, key, f"POST /triggers/{trigger_id}/run")
    return await _change(request, trigger_id, TriggerRequest("run", request_key=request_key))


@routes.route(
    "POST",
    "/triggers/{trigger_id}/skip",
    scope="operate",
    returns=TriggerAnswer,
    refuses=_REFUSALS,
    summary="Skip the next instant",
)
async def skip_trigger(
    request: Request, trigger_id: TriggerId, key: IdempotencyKey = None
) -> Response:
    """Let the next instant of a schedule pass; the one after it is next."""
    request_key = await _request_key(request, key, f"POST /triggers/{trigger_id}/skip")
    return await _change(request, trigger_id, TriggerRequest("skip", request_key=request_key))


@routes.route(
    "POST",
    "/triggers/{trigger_id}/backfill",
    scope="operate",
    returns=TriggerAnswer,
    refuses=_REFUSALS,
    summary="Run instants of the past",
)
async def backfill_trigger(
    request: Request, trigger_id: TriggerId, body: BackfillRequest
) -> Response:
    """Queue runs for instants that have no fate of their own, the oldest first.

    Repeating the request queues only what was left out.
    """
    return await _change(
        request,
        trigger_id,
        TriggerRequest(
            "backfill", first=body.first, last=body.last, most=body.most, dry_run=body.dry_run
        ),
    )


@routes.route(
    "POST",
    "/triggers/{trigger_id}/reset",
    scope="operate",
    returns=TriggerAnswer,
    refuses=_REFUSALS,
    summary="Reset a watcher",
)
async def reset_trigger(request: Request, trigger_id: TriggerId) -> Response:
    """Make the next poll of a watcher a first one; items that have a fate keep it."""
    return await _change(request, trigger_id, TriggerRequest("reset"))


@routes.route(
    "POST",
    "/triggers/{trigger_id}/check",
    scope="operate",
    returns=TriggerCheck,
    refuses=_REFUSALS,
    summary="Poll a watcher and record nothing",
)
async def check_trigger(request: Request, trigger_id: TriggerId) -> Response:
    """Poll a watcher once and return what would follow; 409 says why the poll failed."""
    return answer(await context_of(request).watcher_checks.check(trigger_id))


async def _request_key(request: Request, key: IdempotencyKey, address: str) -> str | None:
    """Return what a repetition of a request is known by, if its client gave a key."""
    keys = context_of(request).idempotency_keys
    return await keys.dedupe_key(caller(request), key, address, None)


async def _change(request: Request, trigger_id: str, command: TriggerRequest) -> Response:
    context = context_of(request)
    clock = context.database.clock
    result = await context.command_pool.run(
        lambda: perform(TriggerCommands(context.database, clock), trigger_id, command, clock.now())
    )
    return answer(
        {
            "changed": result.is_changed,
            "message": result.message,
            "trigger_id": result.trigger_id,
            "tasks": result.tasks,
            "instants": result.instants,
        }
    )
