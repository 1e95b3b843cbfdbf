"""Answers without a token: by a signed link that a person opens, or by a program's signature.

A link's address is the only credential, and mail scanners follow links: GET only shows the question,
and POST decides it. A link is valid for one question and until a time; a question is decided once.
"""

from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import structlog
from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering, approval_documents
from agent.approvals.answering import DecidedError, InvalidAnswerError
from agent.approvals.permission import NotAllowedError, Principal
from agent.channels.link_signing import BadLinkError, Link, key_of, read_link
from agent.channels.secret_ref import SecretError, prefetch_secrets, read_secret
from agent.core.logs import audit
from agent.server.access import webhook_signatures
from agent.server.access.webhook_signatures import SignatureError
from agent.server.context import context_of
from agent.server.pages.inbox.answer_form import Form, answer_in
from agent.server.pages.inbox.answer_page import page
from agent.server.problems import Problem, retry_later
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry, client_address
from agent.server.schemas.approvals import ApprovalAnswer
from agent.steps.types.outcome import Json
from agent.tasks.errors import NotFoundError

log = structlog.get_logger(__name__)

routes = RouteRegistry("links", prefix="")

CHANNEL = "webhook"
LinkToken = Annotated[str, Path(max_length=200)]


class SignedAnswer(BaseModel):
    """A program's answer."""

    model_config = ConfigDict(extra="forbid")

    approval: str = Field(
        max_length=100,
        description="The approval's id.",
        examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11"],
    )
    decision: Literal["approve", "deny", "answer"] = Field(examples=["approve"])
    comment: str | None = None
    value: Any = None
    edits: dict[str, Any] | None = None


@routes.route("GET", "/links/{token}", scope="public", include_in_schema=False)
async def show(request: Request, token: LinkToken) -> Response:
    """Show a question, or its decision; this changes nothing."""
    try:
        return page(await _approval(request, await _link(request, token)))
    except (BadLinkError, NotFoundError) as error:
        return page(None, title=_sentence(error), status=404)


@routes.route("POST", "/links/{token}", scope="public", include_in_schema=False)
async def decide(request: Request, token: LinkToken) -> Response:
    """Record the answer from the page's form."""
    try:
        link = await _link(request, token)
        approval = await _approval(request, link)
    except (BadLinkError, NotFoundError) as error:
        return page(None, title=_sentence(error), status=404)
    form = _form(await request.body())
    try:
        await _answer(request, link.approval_id, "link", **answer_in(approval, form))
    except (InvalidAnswerError, NotAllowedError) as error:
        status = 403 if isinstance(error, NotAllowedError) else 422
        return page(approval, problem=_sentence(error), typed=form, status=status)
    except DecidedError as error:
        now = await _approval(request, link)
        return page(now, problem=f"Your answer came too late: {error}.", status=409)
    # Relative: a proxy may serve us under a path of its own.
    return Response(status_code=303, headers={"location": token, "referrer-policy": "no-referrer"})


@routes.route(
    "POST",
    "/answers",
    scope="public",
    returns=ApprovalAnswer,
    refuses={
        401: "The signature is not valid",
        404: "No such approval, or no webhook is configured",
        409: "It was already decided; `decided` contains the decision and its author",
    },
    summary="Answer with a signature",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": SignedAnswer.model_json_schema()}},
        }
    },
)
async def answer_signed(request: Request) -> Response:
    """Record a program's answer, signed by the Standard Webhooks scheme with the webhook's secret."""
    secret, _ = await _secret(request)
    body = await request.body()
    try:
        now = context_of(request).database.clock.now()
        webhook_signatures.verify("standard", secret, request.headers, body, now)
    except SignatureError as error:
        _count_failure(request)
        raise Problem(401, "bad-signature", str(error)) from None
    try:
        signed = SignedAnswer.model_validate_json(body)
    except ValidationError as error:
        errors = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()]
        raise Problem(422, "invalid", "; ".join(errors), errors=errors) from None
    details = signed.model_dump(exclude={"approval"})
    result = await _answer(request, signed.approval, "program", **details)
    return answer(
        {
            "approval": result.approval_id,
            "task": result.task_id,
            "step": result.step,
            "status": result.status,
            "message": result.message,
        }
    )


async def _secret(request: Request) -> tuple[str, bytes]:
    """Return the webhook's secret, as text and decoded."""
    hook = context_of(request).settings.channels.webhook
    if not hook.secret:
        raise Problem(404, "not-found", "there is nothing at this address")
    await prefetch_secrets(hook.secret)
    try:
        secret = read_secret(hook.secret)
        return secret, key_of(secret)
    except SecretError as error:
        # Its limit is the log's too.
        _count_failure(request)
        log.error("webhook.secret_unusable", error=str(error))
        raise retry_later(503, "unavailable", "the webhook's secret cannot be used", 60) from None


async def _link(request: Request, token: str) -> Link:
    """Return the content of a link; raise `BadLinkError` if it is forged or has expired."""
    _, key = await _secret(request)
    try:
        return read_link(key, token, context_of(request).database.clock.now())
    except BadLinkError:
        _count_failure(request)
        raise


def _count_failure(request: Request) -> None:
    wait = context_of(request).failed_auth_limiter.add(client_address(request.scope))
    if wait > 0:
        raise retry_later(429, "too-many", "too many links or signatures that are not valid", wait)


async def _approval(request: Request, link: Link) -> dict[str, Json]:
    return await context_of(request).read_pool.read(
        lambda connection: approval_documents.approval_document(connection, link.approval_id)
    )


async def _answer(
    request: Request, approval_id: str, by: str, **details: Any
) -> answering.Answered:
    context = context_of(request)
    source = client_address(request.scope)
    # The signature is the permission to answer.
    principal = Principal(CHANNEL, by, frozenset({"approve"}))
    with audit.recorded(f"{CHANNEL}:{by}", source, str(details["decision"]), approval=approval_id):
        return await context.command_pool.run(
            lambda: answering.answer(context.database, approval_id, principal=principal, **details)
        )


def _form(body: bytes) -> Form:
    """Read a form; of a repeated field the last value counts."""
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=200)
    except ValueError:
        return {}
    # Browsers send CRLF line ends.
    return {name: texts[-1].replace("\r\n", "\n") for name, texts in fields.items()}


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]
