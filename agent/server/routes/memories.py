"""Memories of agents: list, search, show, add and forget."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import caller, context_of
from agent.server.idempotency import IdempotencyKey
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import PREFIX, RouteRegistry
from agent.server.schemas.memories import MemoryDocument, MemoryPage, NewMemory
from agent.store.db.database import Connection
from agent.tool_services import memories
from agent.tool_services.memories import MAX_QUERY_CHARS, MAX_RESULTS, MAX_SCOPE_CHARS, Memories

routes = RouteRegistry("memories")

MemoryId = Annotated[int, Path(ge=1, le=2**53, examples=[17])]
_NOT_FOUND = {404: "No such memory"}


@routes.route(
    "GET", "/memories", scope="read", returns=MemoryPage, summary="Memories, the newest first"
)
async def list_memories(
    request: Request,
    scope: Annotated[
        str | None, Query(description="Only memories of this scope.", max_length=MAX_SCOPE_CHARS)
    ] = None,
    query: Annotated[
        str | None,
        Query(
            alias="q",
            description=f"Words to search for; at most {MAX_RESULTS} are found, the best first.",
            max_length=MAX_QUERY_CHARS,
        ),
    ] = None,
    cursor: Annotated[
        int | None, Query(description="`next` of the previous page.", ge=1, le=2**53)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    *,
    forgotten: Annotated[
        bool, Query(description="Also those that were forgotten and not yet deleted.")
    ] = False,
) -> Response:
    """Return a page of memories, or what a search finds."""

    def read(connection: Connection) -> list[memories.Document]:
        if query:
            return memories.search(connection, scope, query, limit)
        return memories.list_memories(connection, scope, limit + 1, cursor, has_forgotten=forgotten)

    found = await context_of(request).read_pool.read(read)
    shown = found[:limit]
    has_more = not query and len(found) > limit
    return answer({"memories": shown, "next": str(shown[-1]["id"]) if has_more else None})


@routes.route(
    "GET",
    "/memories/{memory_id}",
    scope="read",
    returns=MemoryDocument,
    refuses=_NOT_FOUND,
    summary="One memory",
)
async def get_memory(request: Request, memory_id: MemoryId) -> Response:
    """Return a memory, also one that was forgotten and not yet deleted."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: memories.show(connection, memory_id)
        )
    )


@routes.route(
    "POST",
    "/memories",
    scope="operate",
    status=201,
    returns=MemoryDocument,
    refuses={409: "The scope is full, or the text cannot be stored"},
    summary="Add a memory",
)
async def add_memory(request: Request, body: NewMemory, key: IdempotencyKey = None) -> Response:
    """Remember a text for the agents of a scope."""
    context = context_of(request)
    call_key = await context.idempotency_keys.dedupe_key(
        caller(request), key, "POST /memories", body.model_dump()
    )
    written_by = f"api:{caller(request).name}"
    document = await context.command_pool.run(
        lambda: Memories(context.database, context.database.clock).remember(
            body.scope, body.text, written_by=written_by, call_key=call_key
        )
    )
    url = f"{PREFIX}/memories/{document['id']}"
    return answer(document, status=201, headers={"Location": url})


@routes.route(
    "POST",
    "/memories/{memory_id}/forget",
    scope="operate",
    returns=MemoryDocument,
    refuses=_NOT_FOUND,
    summary="Forget a memory",
)
async def forget_memory(request: Request, memory_id: MemoryId) -> Response:
    """Let no agent find a memory again; a prune deletes it."""
    context = context_of(request)
    return answer(
        await context.command_pool.run(
            lambda: Memories(context.database, context.database.clock).forget(memory_id)
        )
    )
