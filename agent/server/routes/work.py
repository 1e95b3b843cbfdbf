"""The calls of external workers: claim, report, end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import caller, context_of, still_allowed, while_allowed
from agent.server.examples import work as work_examples
from agent.server.held_lease import HeldLease
from agent.server.requests.paging import Cursor, page
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import Function, RouteRegistry
from agent.server.schemas.base import ResponseDocument
from agent.server.schemas.work import (
    AddSnapshotRequest,
    AppendedSnapshot,
    ArtifactRequest,
    AskRequest,
    CheckpointRequest,
    ClaimedWork,
    ClaimRequest,
    CompleteRequest,
    EndedLease,
    FailRequest,
    HeartbeatRequest,
    KeptArtifact,
    LeaseState,
    LogRequest,
    NextClaimRequest,
    ReleaseRequest,
    SnapshotDocument,
    SnapshotPage,
)

routes = RouteRegistry("work")

LeaseId = Annotated[
    str,
    Path(
        max_length=200,
        description="`lease_id` of the claim",
        examples=[work_examples.CLAIMED_WORK["work"][0]["lease_id"]],
    ),
]
_LOST = {410: "The lease is not valid: `reason` says why, and nothing has changed"}
_REFUSED = {**_LOST, 409: "The task takes no more of these"}


def _on_lease(
    verb: str, returns: type[ResponseDocument], summary: str, refuses: dict[int, str] = _LOST
) -> Callable[[Function], Function]:
    """Register a call that the holder of a lease makes."""
    return routes.route(
        "POST",
        f"/work/{{lease_id}}/{verb}",
        scope="work",
        returns=returns,
        refuses=refuses,
        summary=summary,
    )


def _held(request: Request, lease_id: str) -> HeldLease:
    return context_of(request).work.lease(caller(request).principal, lease_id)


@routes.route("POST", "/work/claim", scope="work", returns=ClaimedWork, summary="Claim work")
async def claim_work(request: Request, body: ClaimRequest) -> Response:
    """Return work of the queues, oldest first; wait for some if there is none."""
    return answer(await _claim(request, body, body.wait))


async def _claim(request: Request, body: ClaimRequest, wait: float) -> dict[str, Any]:
    claiming = context_of(request).work.claim(
        caller(request).principal,
        body.queues,
        body.worker,
        wait=wait,
        limit=body.limit,
        client_token=body.client_token,
        start=body.start,
        lease=body.lease,
    )
    if not wait:
        return await claiming
    return await while_allowed(lambda: still_allowed(request), claiming)


async def _with_next(
    request: Request,
    ending: Coroutine[Any, Any, dict[str, Any]],
    following: NextClaimRequest | None,
) -> Response:
    """Answer the end of a lease, and the claim of the next work: both are parts of one commit."""
    if following is None:
        return answer(await ending)
    claiming = asyncio.ensure_future(_next_work(request, following))
    try:
        ended = await ending
    finally:
        work = await claiming
    return answer({**ended, "work": work})


async def _next_work(request: Request, following: NextClaimRequest) -> list[Any] | None:
    """Return the next work; None if the claim failed: the worker repeats it, and gets its error."""
    try:
        claimed = await _claim(request, following, 0.0)
    except Exception:
        return None
    work: list[Any] = claimed["work"]
    return work


@_on_lease("running", LeaseState, "Begin claimed work")
async def start_work(request: Request, lease_id: LeaseId) -> Response:
    """Record that the worker begins; an effect may happen only after this."""
    return answer(await _held(request, lease_id).running())


@_on_lease("heartbeat", LeaseState, "Extend a lease")
async def extend_lease(
    request: Request, lease_id: LeaseId, body: HeartbeatRequest | None = None
) -> Response:
    """Extend the lease, and say whether to go on."""
    knows = body is not None and "snapshot" in body.model_fields_set
    snapshot = (body.snapshot or "") if body is not None and knows else None
    return answer(await _held(request, lease_id).heartbeat(snapshot))


@_on_lease("checkpoint", LeaseState, "Save a checkpoint")
async def save_checkpoint(request: Request, lease_id: LeaseId, body: CheckpointRequest) -> Response:
    """Save a value that the next attempt, or the next worker, gets."""
    return answer(await _held(request, lease_id).checkpoint(body.value))


@_on_lease("log", LeaseState, "Write to the step's log")
async def write_log(request: Request, lease_id: LeaseId, body: LogRequest) -> Response:
    """Append a text to the log of the step."""
    return answer(await _held(request, lease_id).log(body.text, body.stream))


@_on_lease("artifact", KeptArtifact, "Keep a value", _REFUSED)
async def add_artifact(request: Request, lease_id: LeaseId, body: ArtifactRequest) -> Response:
    """Keep a value beside the step's output; the event `artifact.added` names it."""
    return answer(await _held(request, lease_id).artifact(body.name, body.value))


@_on_lease("snapshot", AppendedSnapshot, "Append a snapshot", _REFUSED)
async def add_snapshot(request: Request, lease_id: LeaseId, body: AddSnapshotRequest) -> Response:
    """Append a value to the context of the task; with a `client_token` the call may be repeated."""
    return answer(
        await _held(request, lease_id).snapshot(body.value, body.label, body.client_token)
    )


@routes.route(
    "GET",
    "/work/{lease_id}/snapshots",
    scope="work",
    returns=SnapshotPage,
    refuses=_LOST,
    summary="Snapshots of the task, under a lease",
)
async def read_snapshots(
    request: Request,
    lease_id: LeaseId,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Response:
    """Return a page of the snapshots of the task that the work belongs to, the oldest first."""
    snapshots = await _held(request, lease_id).snapshots(cursor, limit + 1)
    return answer(page("snapshots", snapshots, limit))


@routes.route(
    "GET",
    "/work/{lease_id}/snapshots/latest",
    scope="work",
    returns=SnapshotDocument,
    refuses={**_LOST, 404: "The task has no snapshot"},
    summary="The newest snapshot of the task, under a lease",
)
async def read_latest_snapshot(
    request: Request,
    lease_id: LeaseId,
    label: Annotated[str | None, Query(description="Only with this label.", max_length=200)] = None,
) -> Response:
    """Return the snapshot that was appended last to the task that the work belongs to."""
    return answer(await _held(request, lease_id).latest_snapshot(label))


@_on_lease("complete", EndedLease, "Complete work", _REFUSED)
async def complete_work(
    request: Request, lease_id: LeaseId, body: CompleteRequest | None = None
) -> Response:
    """End the step with its output, which must be as the step's schema says."""
    body = body or CompleteRequest()
    appended = None if body.snapshot is None else (body.snapshot.value, body.snapshot.label)
    ending = _held(request, lease_id).complete(body.output, appended)
    return await _with_next(request, ending, body.claim)


@_on_lease("fail", EndedLease, "Fail work")
async def fail_work(request: Request, lease_id: LeaseId, body: FailRequest) -> Response:
    """End the attempt without success; another follows if the step has any left."""
    ending = _held(request, lease_id).fail(
        body.message,
        code=body.code,
        retryable=body.retryable,
        delay=body.delay,
    )
    return await _with_next(request, ending, body.claim)


@_on_lease("release", EndedLease, "Give work back")
async def release_work(request: Request, lease_id: LeaseId, body: ReleaseRequest) -> Response:
    """Put the work back into its queue; what has not begun uses up no attempt."""
    return answer(await _held(request, lease_id).release(body.reason, body.checkpoint))


@_on_lease("ask", EndedLease, "Ask a person")
async def ask_person(request: Request, lease_id: LeaseId, body: AskRequest) -> Response:
    """Park the step with a question; the claim after the answer has it."""
    return answer(
        await _held(request, lease_id).ask(
            body.question,
            choices=body.choices,
            schema=body.schema_,
            who=body.who,
            expires=body.expires,
            checkpoint=body.checkpoint,
        )
    )


@_on_lease("block", EndedLease, "Wait for a person")
async def block_work(request: Request, lease_id: LeaseId, body: ReleaseRequest) -> Response:
    """Park the step until a person says how it goes on, or resumes it."""
    return answer(await _held(request, lease_id).block(body.reason, body.checkpoint))
