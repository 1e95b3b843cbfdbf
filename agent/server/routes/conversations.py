"""Conversations: what people and agents said, and its deletion."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import context_of
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.conversations import (
    ConversationDocument,
    ConversationList,
    ForgottenConversation,
)
from agent.tasks.operator.conversations import forget
from agent.tasks.read_models import conversations

routes = RouteRegistry("conversations")

ConversationId = Annotated[str, Path(max_length=200, examples=["telegram:123"])]
_NOT_FOUND = {404: "No such conversation"}


@routes.route(
    "GET",
    "/conversations",
    scope="read",
    returns=ConversationList,
    summary="Conversations, the one with the newest entry first",
)
async def list_conversations(
    request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    """Return what agents keep of conversations: how many entries, how long, since when."""
    return await context_of(request).read_pool.read(
        lambda connection: answer(
            {"conversations": conversations.list_conversations(connection, limit)}
        )
    )


@routes.route(
    "GET",
    "/conversations/{conversation_id}",
    scope="read",
    returns=ConversationDocument,
    refuses=_NOT_FOUND,
    summary="The entries of a conversation",
)
async def get_conversation(
    request: Request,
    conversation_id: ConversationId,
    after: Annotated[int, Query(ge=0, lt=2**53, description="The number of an entry.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return the entries after a number, the oldest first, each with the task that appended it."""
    return await context_of(request).read_pool.read(
        lambda connection: answer(
            conversations.conversation_document(connection, conversation_id, after, limit)
        )
    )


@routes.route(
    "POST",
    "/conversations/{conversation_id}/forget",
    scope="operate",
    returns=ForgottenConversation,
    refuses=_NOT_FOUND,
    summary="Delete a conversation's entries",
)
async def forget_conversation(request: Request, conversation_id: ConversationId) -> Response:
    """Delete every entry; the tasks that answered stay. The next message begins again."""
    database = context_of(request).database
    return answer(
        await context_of(request).command_pool.run(lambda: forget(database, conversation_id))
    )
