"""Webhooks: calls from outside that start a workflow, once per delivery."""

from typing import Annotated, Any, Final

import structlog
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from agent.channels.secret_ref import SecretError, read_secret
from agent.core.log_limit import LogLimit
from agent.server import webhook_signatures
from agent.server.context import Context, here
from agent.server.problems import Problem, retry_later
from agent.server.responses import answer
from agent.server.route_registry import RouteRegistry, client_address
from agent.server.schemas import HookAnswer
from agent.server.webhook_signatures import Delivery, SignatureError
from agent.tasks.errors import NotFoundError
from agent.tasks.submission import StartableWorkflow

log = structlog.get_logger(__name__)

table = RouteRegistry("hooks", prefix="")

_REFUSAL: Final = "no webhook of this name takes this delivery: its signature does not fit"
_refusals = LogLimit(most=10, window_seconds=60.0)


@table.route(
    "POST",
    "/hooks/{name}",
    scope="public",
    status=202,
    returns=HookAnswer,
    refuses={401: "No webhook of this name, or its signature does not fit"},
    summary="Deliver a webhook",
    responses={
        200: {
            "description": "An answer to the sender's test; nothing was started",
            "content": {"application/json": {"schema": {}, "example": {"challenge": "abc"}}},
        }
    },
    openapi_extra={
        "requestBody": {
            "description": "What the sender sends: JSON, or else taken as text.",
            "content": {"application/json": {"schema": {}, "example": {"type": "invoice.paid"}}},
        }
    },
)
async def deliver(
    request: Request, name: Annotated[str, Path(max_length=200, examples=["on-payment"])]
) -> Response:
    """Start the workflow for this delivery, if its signature fits `on: webhook` of the workflow.

    When this answers, the task is on record; the same delivery again is the same task.
    """
    context = here(request)
    # First: a client that holds its body back gets no work out of the database.
    body = await request.body()
    workflow = await _hooked(context, name)
    try:
        delivery = _verified(context, workflow, request, body)
    except SignatureError as error:
        _count_failure(request, name, str(error))
        # The same for an unknown name: without a proof a sender does not learn what there is.
        raise Problem(401, "bad-signature", _REFUSAL) from None
    except SecretError as error:
        _count_failure(request, name, str(error))
        # The sender cannot help it, and may come again.
        raise retry_later(503, "unavailable", "the webhook's secret cannot be used", 60) from None
    assert workflow is not None
    if delivery.reply is not None:
        return answer(delivery.reply)
    task_id = await here(request).desk.submit(
        workflow,
        {},
        trigger={
            "kind": "webhook",
            "id": delivery.id,
            "event": delivery.event,
            "body": delivery.body,
        },
        dedupe_key=None if delivery.id is None else f"hook:{name}:{delivery.id}",
    )
    return answer({"task": task_id}, 202)


async def _hooked(context: Context, name: str) -> StartableWorkflow | None:
    """Return a workflow that takes webhooks; None if there is none of this name."""
    try:
        workflow = await context.desk.workflow(name)
    except NotFoundError:
        return None
    return workflow if workflow.graph.on.get("webhook") is not None else None


def _verified(
    context: Context, workflow: StartableWorkflow | None, request: Request, body: bytes
) -> Delivery:
    if workflow is None:
        webhook_signatures.spend_time(body)
        raise SignatureError("no workflow of this name takes webhooks")
    keys: dict[str, Any] = workflow.graph.on["webhook"]
    return webhook_signatures.verify(
        keys.get("verify", "standard"),
        read_secret(keys["secret"]),
        request.headers,
        body,
        context.database.clock.now(),
    )


def _count_failure(request: Request, name: str, reason: str) -> None:
    """Count a delivery that proves nothing against its sender; the log has the reason."""
    address = client_address(request.scope)
    held_back = _refusals.admit()
    if held_back is not None:
        log.warning(
            "webhook.refused", workflow=name, address=address, reason=reason, held_back=held_back
        )
    wait = here(request).failures.add(address)
    if wait > 0:
        raise retry_later(429, "too-many", "too many deliveries that do not fit", wait)
