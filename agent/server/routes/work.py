"""The calls of external workers: claim, report, end."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from agent.server import examples
from agent.server.context import caller, context_of
from agent.server.responses import answer
from agent.server.route_registry import RouteRegistry
from agent.server.schemas.work import (
    AddingArtifact,
    AppendedSnapshot,
    Asking,
    Beating,
    ClaimedWork,
    Claiming,
    ClaimingNext,
    Completing,
    EndedLease,
    FailingWork,
    KeptArtifact,
    LeaseState,
    Logging,
    NewSnapshot,
    Releasing,
    Saving,
)

routes = RouteRegistry("work")

LeaseId = Annotated[
    str,
    Path(
        max_length=200,
        description="`lease_id` of the claim",
        examples=[examples.CLAIMED_WORK["work"][0]["lease_id"]],
    ),
]
_LOST = {410: "The lease does not count any more: `reason` says why, and nothing has changed"}
_REFUSED = {**_LOST, 409: "The task takes no more of these"}


@routes.route("POST", "/work/claim", scope="work", returns=ClaimedWork, summary="Claim work")
async def claim_work(request: Request, body: Claiming) -> Response:
    """Return work of the queues, oldest first; wait for some if there is none."""
    return answer(await _claim(request, body, body.wait))


async def _claim(request: Request, body: Claiming, wait: float) -> dict[str, Any]:
    return await context_of(request).work.claim(
        caller(request).principal,
        body.queues,
        body.worker,
        wait=wait,
        limit=body.limit,
        client_token=body.client_token,
        start=body.start,
        lease=body.lease,
    )


async def _with_next(
    request: Request, ending: Coroutine[Any, Any, dict[str, Any]], following: ClaimingNext | None
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


async def _next_work(request: Request, following: ClaimingNext) -> list[Any] | None:
    """Return the next work; None if the claim failed: the worker repeats it, and gets its error."""
    try:
        claimed = await _claim(request, following, 0.0)
    except Exception:
        return None
    work: list[Any] = claimed["work"]
    return work


@routes.route(
    "POST",
    "/work/{lease_id}/running",
    scope="work",
    returns=LeaseState,
    refuses=_LOST,
    summary="Begin claimed work",
)
async def start_work(request: Request, lease_id: LeaseId) -> Response:
    """Record that the worker begins; an effect may happen only after this."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.running(principal, lease_id))


@routes.route(
    "POST",
    "/work/{lease_id}/heartbeat",
    scope="work",
    returns=LeaseState,
    refuses=_LOST,
    summary="Extend a lease",
)
async def extend_lease(
    request: Request, lease_id: LeaseId, body: Beating | None = None
) -> Response:
    """Extend the lease, and say whether to go on."""
    work, principal = context_of(request).work, caller(request).principal
    snapshot = None if body is None else body.snapshot
    return answer(await work.heartbeat(principal, lease_id, snapshot))


@routes.route(
    "POST",
    "/work/{lease_id}/checkpoint",
    scope="work",
    returns=LeaseState,
    refuses=_LOST,
    summary="Save a checkpoint",
)
async def save_checkpoint(request: Request, lease_id: LeaseId, body: Saving) -> Response:
    """Save a value that the next attempt, or the next worker, gets."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.checkpoint(principal, lease_id, body.value))


@routes.route(
    "POST",
    "/work/{lease_id}/log",
    scope="work",
    returns=LeaseState,
    refuses=_LOST,
    summary="Write to the step's log",
)
async def write_log(request: Request, lease_id: LeaseId, body: Logging) -> Response:
    """Append a text to the log of the step."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.log(principal, lease_id, body.text, body.stream))


@routes.route(
    "POST",
    "/work/{lease_id}/artifact",
    scope="work",
    returns=KeptArtifact,
    refuses=_LOST,
    summary="Keep a value",
)
async def add_artifact(request: Request, lease_id: LeaseId, body: AddingArtifact) -> Response:
    """Keep a value beside the step's output; the event `artifact.added` names it."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.artifact(principal, lease_id, body.name, body.value))


@routes.route(
    "POST",
    "/work/{lease_id}/snapshot",
    scope="work",
    returns=AppendedSnapshot,
    refuses=_REFUSED,
    summary="Append a snapshot",
)
async def add_snapshot(request: Request, lease_id: LeaseId, body: NewSnapshot) -> Response:
    """Append a value to the context of the task."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.snapshot(principal, lease_id, body.value, body.label))


@routes.route(
    "POST",
    "/work/{lease_id}/complete",
    scope="work",
    returns=EndedLease,
    refuses=_REFUSED,
    summary="Complete work",
)
async def complete_work(
    request: Request, lease_id: LeaseId, body: Completing | None = None
) -> Response:
    """End the step with its output, which must be as the step's schema says."""
    body = body or Completing()
    appended = None if body.snapshot is None else (body.snapshot.value, body.snapshot.label)
    work, principal = context_of(request).work, caller(request).principal
    ending = work.complete(principal, lease_id, body.output, appended)
    return await _with_next(request, ending, body.claim)


@routes.route(
    "POST",
    "/work/{lease_id}/fail",
    scope="work",
    returns=EndedLease,
    refuses=_LOST,
    summary="Fail work",
)
async def fail_work(request: Request, lease_id: LeaseId, body: FailingWork) -> Response:
    """End the attempt without success; another follows if the step has any left."""
    work, principal = context_of(request).work, caller(request).principal
    ending = work.fail(
        principal,
        lease_id,
        body.message,
        code=body.code,
        retryable=body.retryable,
        delay=body.delay,
    )
    return await _with_next(request, ending, body.claim)


@routes.route(
    "POST",
    "/work/{lease_id}/release",
    scope="work",
    returns=EndedLease,
    refuses=_LOST,
    summary="Give work back",
)
async def release_work(request: Request, lease_id: LeaseId, body: Releasing) -> Response:
    """Put the work back into its queue; what has not begun uses up no attempt."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.release(principal, lease_id, body.reason, body.checkpoint))


@routes.route(
    "POST",
    "/work/{lease_id}/ask",
    scope="work",
    returns=EndedLease,
    refuses=_LOST,
    summary="Ask a person",
)
async def ask_person(request: Request, lease_id: LeaseId, body: Asking) -> Response:
    """Park the step with a question; the claim after the answer has it."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(
        await work.ask(
            principal,
            lease_id,
            body.question,
            choices=body.choices,
            schema=body.schema_,
            who=body.who,
            expires=body.expires,
            checkpoint=body.checkpoint,
        )
    )


@routes.route(
    "POST",
    "/work/{lease_id}/block",
    scope="work",
    returns=EndedLease,
    refuses=_LOST,
    summary="Wait for a person",
)
async def block_work(request: Request, lease_id: LeaseId, body: Releasing) -> Response:
    """Park the step until a person says how it goes on, or resumes it."""
    work, principal = context_of(request).work, caller(request).principal
    return answer(await work.block(principal, lease_id, body.reason, body.checkpoint))
