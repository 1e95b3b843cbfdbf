"""Questions to people: listed, shown, and answered once."""

from typing import Annotated, Any

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering, approval_documents
from agent.approvals.answering import AnswerVerb
from agent.server.context import caller, here
from agent.server.paging import Cursor, PartOfId, page
from agent.server.responses import answer
from agent.server.route_registry import RouteRegistry
from agent.server.schemas import (
    Answering,
    ApprovalAnswer,
    ApprovalDocument,
    ApprovalList,
    Approving,
    Deferring,
    Denying,
)

table = RouteRegistry("approvals")

ApprovalId = Annotated[str, Path(max_length=100, examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11"])]
_REFUSALS = {
    403: "The token's scopes, or the question's own list of who may answer, do not allow it",
    404: "No such approval",
    409: "It was decided before; `decided` says what, and by whom",
}


@table.route(
    "GET", "/approvals", scope="read", returns=ApprovalList, summary="What waits for an answer"
)
async def list_approvals(
    request: Request,
    task: Annotated[str | None, Query(description="Only this task's.", max_length=100)] = None,
    part: PartOfId = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    *,
    every: Annotated[
        bool, Query(alias="all", description="Also what was decided, the newest first.")
    ] = False,
) -> Response:
    """Give the questions that wait for an answer, the oldest first; or all there ever were."""
    found = await here(request).reading.read(
        lambda connection: approval_documents.list_approvals(
            connection, is_all=every, task_id=task, limit=limit + 1, after=cursor, like=part
        )
    )
    return answer(page("approvals", found, limit))


@table.route(
    "GET",
    "/approvals/{approval_id}",
    scope="read",
    returns=ApprovalDocument,
    refuses={404: "No such approval"},
    summary="One question",
)
async def get_approval(request: Request, approval_id: ApprovalId) -> Response:
    """Give a question with what will be done, in full, and what was decided."""
    return answer(
        await here(request).reading.read(
            lambda connection: approval_documents.approval_document(connection, approval_id)
        )
    )


@table.route(
    "POST",
    "/approvals/{approval_id}/approve",
    scope="approve",
    returns=ApprovalAnswer,
    refuses=_REFUSALS,
    summary="Say yes",
)
async def approve(
    request: Request, approval_id: ApprovalId, asked: Approving | None = None
) -> Response:
    """Let the step do what was shown, with what is edited here."""
    asked = asked or Approving()
    return await _decide(
        request, approval_id, "approve", comment=asked.comment, edits=asked.edits or None
    )


@table.route(
    "POST",
    "/approvals/{approval_id}/deny",
    scope="approve",
    returns=ApprovalAnswer,
    refuses=_REFUSALS,
    summary="Say no",
)
async def deny(request: Request, approval_id: ApprovalId, asked: Denying | None = None) -> Response:
    """Let the step fail; the reason reaches the workflow."""
    return await _decide(request, approval_id, "deny", comment=asked.reason if asked else None)


@table.route(
    "POST",
    "/approvals/{approval_id}/answer",
    scope="approve",
    returns=ApprovalAnswer,
    refuses=_REFUSALS,
    summary="Give a value",
)
async def give(request: Request, approval_id: ApprovalId, asked: Answering) -> Response:
    """Give the value that a step asks for, or say what became of an unknown effect."""
    return await _decide(request, approval_id, "answer", comment=asked.comment, value=asked.value)


@table.route(
    "POST",
    "/approvals/{approval_id}/defer",
    scope="approve",
    returns=ApprovalDocument,
    refuses=_REFUSALS,
    summary="Be reminded later",
)
async def defer(request: Request, approval_id: ApprovalId, asked: Deferring) -> Response:
    """Leave a question open and be reminded of it later; it expires when it would have."""
    context, principal = here(request), caller(request).principal
    await context.commands.run(
        lambda: answering.defer(context.database, approval_id, asked.seconds, principal=principal)
    )
    return await get_approval(request, approval_id)


async def _decide(
    request: Request, approval_id: str, decision: AnswerVerb, **given: Any
) -> Response:
    context, principal = here(request), caller(request).principal
    done = await context.commands.run(
        lambda: answering.answer(
            context.database, approval_id, decision, principal=principal, **given
        )
    )
    return answer(
        {
            "approval": done.approval_id,
            "task": done.task_id,
            "step": done.step,
            "status": done.status,
            "message": done.message,
        }
    )
