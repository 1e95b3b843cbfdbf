"""Webhooks: calls from outside that start a workflow, once per delivery."""

from typing import Annotated, Any

import structlog
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from agent.channels.secret import SecretError, read_secret
from agent.server import signatures
from agent.server.answers import answer
from agent.server.context import Context, here
from agent.server.desk import Workflow
from agent.server.door import client_address
from agent.server.problems import Problem, retry_later
from agent.server.shapes import HookAnswer
from agent.server.signatures import Delivery, SignatureError
from agent.server.table import Table
from agent.tasks.operator import NotFoundError

log = structlog.get_logger(__name__)

table = Table("hooks", prefix="")


@table.route(
    "POST",
    "/hooks/{name}",
    scope="public",
    status=202,
    returns=HookAnswer,
    refuses={401: "The signature does not fit", 404: "No such workflow, or it takes no webhook"},
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
    try:
        workflow, keys = await _hooked(here(request), name)
        body = await request.body()
        delivery = _verified(here(request), workflow, keys, request, body)
    except (NotFoundError, SignatureError) as error:
        wait = here(request).failures.add(client_address(request.scope))
        if wait > 0:
            raise retry_later(
                429, "too-many", "too many deliveries that do not fit", wait
            ) from None
        if isinstance(error, NotFoundError):
            raise
        raise Problem(401, "bad-signature", str(error)) from None
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


async def _hooked(context: Context, name: str) -> tuple[Workflow, dict[str, Any]]:
    """Return a workflow that takes webhooks, and what it says of them."""
    # Without a token nobody learns which workflows there are besides.
    missing = NotFoundError(f"no workflow {name!r} takes webhooks")
    try:
        workflow = await context.desk.workflow(name)
    except NotFoundError:
        raise missing from None
    keys: dict[str, Any] | None = workflow.graph.on.get("webhook")
    if keys is None:
        raise missing
    return workflow, keys


def _verified(
    context: Context, workflow: Workflow, keys: dict[str, Any], request: Request, body: bytes
) -> Delivery:
    try:
        return signatures.verify(
            keys.get("verify", "standard"),
            read_secret(keys["secret"]),
            request.headers,
            body,
            context.database.clock.now(),
        )
    except SecretError as error:
        # The sender cannot help it, and may come again.
        log.error("webhook.secret_unusable", workflow=workflow.graph.name, error=str(error))
        raise retry_later(503, "unavailable", "the webhook's secret cannot be used", 60) from None
