"""Webhooks: signed deliveries that start a workflow, once per delivery."""

from typing import Annotated, Any, Final

import structlog
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from agent.channels.secret_ref import SecretError, prefetch_secrets, read_secret
from agent.core.logs.log_limit import LogLimit
from agent.server.access import webhook_signatures
from agent.server.access.webhook_signatures import Delivery, SignatureError
from agent.server.context import Context, context_of, trace_of_caller
from agent.server.problems import Problem, retry_later
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry, client_address
from agent.server.schemas.hooks import HookAnswer
from agent.tasks.errors import NotFoundError
from agent.tasks.submission import StartableWorkflow

log = structlog.get_logger(__name__)

routes = RouteRegistry("hooks", prefix="")

_REFUSAL: Final = "there is no such webhook, or the signature of this delivery is not valid"
_refusals = LogLimit(most=10, window_seconds=60.0)


@routes.route(
    "POST",
    "/hooks/{name}",
    scope="public",
    status=202,
    returns=HookAnswer,
    refuses={401: "No such webhook, or the signature is not valid"},
    summary="Deliver a webhook",
    responses={
        200: {
            "description": "The response to the sender's test; nothing was started",
            "content": {"application/json": {"schema": {}, "example": {"challenge": "abc"}}},
        }
    },
    openapi_extra={
        "requestBody": {
            "description": "The delivery: JSON, a form, or any other text.",
            "content": {"application/json": {"schema": {}, "example": {"type": "invoice.paid"}}},
        }
    },
)
async def deliver(
    request: Request, name: Annotated[str, Path(max_length=200, examples=["on-payment"])]
) -> Response:
    """Start the workflow for this delivery, if its signature is valid by `on: webhook` of the workflow.

    A 202 response means that the task is durable. A redelivery returns the same task.
    """
    context = context_of(request)
    # First: a client that withholds its body must not cause database work.
    body = await request.body()
    workflow = await _hooked(context, name)
    if workflow is not None:
        await prefetch_secrets(workflow.graph.on["webhook"]["secret"])
    try:
        delivery = _verified(context, workflow, request, body)
    except SignatureError as error:
        _count_failure(request, name, str(error))
        # The same for an unknown name: an unverified sender must not learn which workflows exist.
        raise Problem(401, "bad-signature", _REFUSAL) from None
    except SecretError as error:
        _count_failure(request, name, str(error))
        # Not the sender's fault: it may deliver again later.
        raise retry_later(503, "unavailable", "the webhook's secret cannot be used", 60) from None
    assert workflow is not None
    if delivery.reply is not None:
        return answer(delivery.reply)
    task_id = await context.task_submitter.submit(
        workflow,
        {},
        trigger={
            "kind": "webhook",
            "id": delivery.id,
            "event": delivery.event,
            "body": delivery.body,
        }
        | trace_of_caller(request),
        dedupe_key=None if delivery.id is None else f"hook:{name}:{delivery.id}",
    )
    return answer({"task": task_id}, 202)


async def _hooked(context: Context, name: str) -> StartableWorkflow | None:
    """Return the workflow of a webhook; None if there is none."""
    try:
        workflow = await context.task_submitter.workflow(name)
    except NotFoundError:
        return None
    return workflow if workflow.graph.on.get("webhook") is not None else None


def _verified(
    context: Context, workflow: StartableWorkflow | None, request: Request, body: bytes
) -> Delivery:
    if workflow is None:
        webhook_signatures.spend_time(body)
        raise SignatureError("no workflow of this name has `on: webhook`")
    keys: dict[str, Any] = workflow.graph.on["webhook"]
    return webhook_signatures.verify(
        keys.get("verify", "standard"),
        read_secret(keys["secret"]),
        request.headers,
        body,
        context.database.clock.now(),
    )


def _count_failure(request: Request, name: str, reason: str) -> None:
    """Count an unverified delivery against its sender, and log the reason."""
    address = client_address(request.scope)
    held_back = _refusals.admit(address)
    if held_back is not None:
        log.warning(
            "webhook.refused", workflow=name, address=address, reason=reason, held_back=held_back
        )
    wait = context_of(request).failed_auth_limiter.add(address)
    if wait > 0:
        raise retry_later(429, "too-many", "too many deliveries without a valid signature", wait)
