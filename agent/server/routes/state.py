"""Values of `state`: list, show, set, delete."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.core.state_names import SHARED, workflow_scope
from agent.server.context import caller, context_of
from agent.server.problems import Problem
from agent.server.requests.paging import page
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.state import (
    DeleteValueRequest,
    NewValue,
    StateAnswer,
    StateHistory,
    StateList,
)
from agent.tasks.operator import state_commands
from agent.tasks.operator.state_commands import StateResult
from agent.tasks.read_models import state_documents

routes = RouteRegistry("state")

ScopeName = Annotated[
    str,
    Path(
        pattern="^(shared|workflow:[a-z_][a-z0-9_-]{0,99})$",
        description="`shared`, or `workflow:NAME`",
        examples=["workflow:price-watch"],
    ),
]
ValueName = Annotated[
    str, Path(pattern="^[a-z_][a-z0-9_]{0,99}$", description="The value's name", examples=["seen"])
]
_REFUSALS = {404: "No such value", 409: "Another version, too large, or too many values"}


@routes.route("GET", "/state", scope="read", returns=StateList, summary="Values of state")
async def list_state(
    request: Request,
    workflow: Annotated[
        str | None, Query(description="Only values of this workflow.", max_length=100)
    ] = None,
    shared: Annotated[bool, Query(description="Only values that all workflows share.")] = False,
    name: Annotated[
        str | None, Query(description="Only values of this name.", max_length=100)
    ] = None,
    cursor: Annotated[
        str | None, Query(description="`next` of the previous page.", max_length=300)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return a page of current values, by scope and name."""
    if workflow is not None and shared:
        raise Problem(422, "invalid", "give workflow or shared, not both")
    scope = SHARED if shared else None if workflow is None else workflow_scope(workflow)
    values = await context_of(request).read_pool.read(
        lambda connection: state_documents.list_values(connection, scope, name, cursor, limit + 1)
    )
    return answer(page("state", values, limit))


@routes.route(
    "GET",
    "/state/{scope}/{name}",
    scope="read",
    returns=StateHistory,
    refuses={404: "No such value"},
    summary="A value and its history",
)
async def get_state(request: Request, scope: ScopeName, name: ValueName) -> Response:
    """Return a value with its last hundred versions and what wrote each; also of a deleted one."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: state_documents.value_document(connection, (scope, name))
        )
    )


@routes.route(
    "POST",
    "/state/{scope}/{name}",
    scope="operate",
    returns=StateAnswer,
    refuses=_REFUSALS,
    summary="Set a value",
)
async def set_state(
    request: Request, scope: ScopeName, name: ValueName, body: NewValue
) -> Response:
    """Set a value. Steps that have read it before keep what they read."""
    context, by = context_of(request), f"api:{caller(request).name}"
    return _answer(
        await context.command_pool.run(
            lambda: state_commands.set_value(
                context.database,
                context.database.clock,
                (scope, name),
                body.value,
                by=by,
                if_version=body.if_version,
            )
        )
    )


@routes.route(
    "POST",
    "/state/{scope}/{name}/delete",
    scope="operate",
    returns=StateAnswer,
    refuses=_REFUSALS,
    summary="Delete a value",
)
async def delete_state(
    request: Request, scope: ScopeName, name: ValueName, body: DeleteValueRequest | None = None
) -> Response:
    """Delete a value; its versions count on if it is written again."""
    context, by = context_of(request), f"api:{caller(request).name}"
    if_version = None if body is None else body.if_version
    return _answer(
        await context.command_pool.run(
            lambda: state_commands.delete_value(
                context.database,
                context.database.clock,
                (scope, name),
                by=by,
                if_version=if_version,
            )
        )
    )


def _answer(result: StateResult) -> Response:
    return answer(
        {"changed": result.is_changed, "message": result.message, "version": result.version}
    )
