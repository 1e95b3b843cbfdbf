"""Questions to people: list, show, and answer once."""

from typing import Annotated, Any

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering, approval_documents
from agent.approvals.answering import AnswerVerb
from agent.server.context import caller, context_of
from agent.server.requests.paging import Cursor, PartOfId, page
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.approvals import (
    AnswerRequest,
    ApprovalAnswer,
    ApprovalDocument,
    ApprovalList,
    ApproveRequest,
    DeferRequest,
    DenyRequest,
)

routes = RouteRegistry("approvals")

ApprovalId = Annotated[str, Path(max_length=100, examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11"])]
_REFUSALS = {
    403: "The token's scopes, or the question's own list of people, do not allow it",
    404: "No such approval",
    409: "It was already decided; `decided` contains the decision and its author",
}


@routes.route("GET", "/approvals", scope="read", returns=ApprovalList, summary="Open questions")
async def list_approvals(
    request: Request,
    task: Annotated[
        str | None, Query(description="Only questions of this task.", max_length=100)
    ] = None,
    part: PartOfId = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    *,
    every: Annotated[
        bool, Query(alias="all", description="Also decided ones, the newest first.")
    ] = False,
) -> Response:
    """Return the open questions, the oldest first; or all questions."""
    approvals = await context_of(request).read_pool.read(
        lambda connection: approval_documents.list_approvals(
            connection, is_all=every, task_id=task, limit=limit + 1, after=cursor, like=part
        )
    )
    return answer(page("approvals", approvals, limit))


@routes.route(
    "GET",
    "/approvals/{approval_id}",
    scope="read",
    returns=ApprovalDocument,
    refuses={404: "No such approval"},
    summary="One question",
)
async def get_approval(request: Request, approval_id: ApprovalId) -> Response:
    """Return a question with its full request and its decision."""
    return answer(
        await context_of(request).read_pool.read(
            lambda connection: approval_documents.approval_document(connection, approval_id)
        )
    )


@routes.route(
    "POST",
    "/approvals/{approval_id}/approve",
    scope="approve",
    returns=ApprovalAnswer,
    refuses=_REFUSALS,
    summary="Approve",
)
async def approve(
    request: Request, approval_id: ApprovalId, body: ApproveRequest | None = None
) -> Response:
    """Let the step run the request as shown, with the edits given here."""
    body = body or ApproveRequest()
    return await _decide(
        request, approval_id, "approve", comment=body.comment, edits=body.edits or None
    )


@routes.route(
    "POST",
    "/approvals/{approval_id}/deny",
    scope="approve",
    returns=ApprovalAnswer,
    refuses=_REFUSALS,
    summary="Deny",
)
async def deny(
    request: Request, approval_id: ApprovalId, body: DenyRequest | None = None
) -> Response:
    """Fail the step; the workflow sees the reason."""
    return await _decide(request, approval_id, "deny", comment=body.reason if body else None)


@routes.route(
    "POST",
    "/approvals/{approval_id}/answer",
    scope="approve",
    returns=ApprovalAnswer,
    refuses=_REFUSALS,
    summary="Answer with a value",
)
async def give(request: Request, approval_id: ApprovalId, body: AnswerRequest) -> Response:
    """Send the value that a step asks for, or the verdict on an unknown effect."""
    return await _decide(request, approval_id, "answer", comment=body.comment, value=body.value)


@routes.route(
    "POST",
    "/approvals/{approval_id}/defer",
    scope="approve",
    returns=ApprovalDocument,
    refuses=_REFUSALS,
    summary="Be reminded later",
)
async def defer(request: Request, approval_id: ApprovalId, body: DeferRequest) -> Response:
    """Leave a question open and send a reminder later; its expiry does not change."""
    context, principal = context_of(request), caller(request).principal
    await context.command_pool.run(
        lambda: answering.defer(context.database, approval_id, body.seconds, principal=principal)
    )
    return await get_approval(request, approval_id)


async def _decide(
    request: Request, approval_id: str, decision: AnswerVerb, **details: Any
) -> Response:
    context, principal = context_of(request), caller(request).principal
    result = await context.command_pool.run(
        lambda: answering.answer(
            context.database, approval_id, decision, principal=principal, **details
        )
    )
    return answer(
        {
            "approval": result.approval_id,
            "task": result.task_id,
            "step": result.step,
            "status": result.status,
            "message": result.message,
        }
    )
