"""Questions of tasks to people, asked through the client: as forms, and their answers to the API.

A client may let a model fill a form in. So a question goes to a client only where its caller has the scope
`approve`, and only if the person would see all of it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agent.core.escape import harmless, harmless_json
from agent.mcp.api_calls import Api, ApiError, ApiRequest

if TYPE_CHECKING:
    from mcp.server import ServerRequestContext
    from mcp_types import ElicitResult, InputRequests, InputRequiredResult

Document = dict[str, Any]

_API: Final = "/api/v1"
_MAX_SHOWN: Final = 4000
"""A longer request would be cut by some clients; it is answered elsewhere."""
_AS_JSON: Final = {"type": "string", "description": "the value as JSON"}
_PLAIN: Final = ("string", "number", "integer", "boolean")


@dataclass(frozen=True, slots=True)
class Asked:
    """The result of asking."""

    required: "InputRequiredResult | None" = None
    """The result to return: the client repeats its call with the answers."""
    has_answers: bool = False


def path(*parts: str) -> str:
    """Return a path of the API; its parts after the first are quoted."""
    return "/".join([parts[0], *(quote(part, safe="") for part in parts[1:])])


def can_ask(api: Api, context: "ServerRequestContext[Any]") -> bool:
    """Whether the caller may answer questions, and its client can show them."""
    if not api.allows("approve"):
        return False
    capabilities = context.session.client_capabilities
    can_elicit = capabilities is not None and capabilities.elicitation is not None
    return can_elicit and (_is_modern(context) or context.session.can_send_request)


def _is_modern(context: "ServerRequestContext[Any]") -> bool:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


async def ask(
    api: Api, context: "ServerRequestContext[Any]", approval_ids: Sequence[str], task_id: str
) -> Asked:
    """Ask the client's user; questions that cannot be shown in full stay open."""
    from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

    forms: dict[str, ElicitRequestFormParams] = {}
    for approval_id in approval_ids:
        approval = await _approval(api, approval_id)
        text = message(approval)
        if approval["status"] == "pending" and text is not None:
            forms[approval_id] = ElicitRequestFormParams(
                message=text, requested_schema=form(approval)
            )
    if not forms:
        return Asked()
    if _is_modern(context):
        requests: InputRequests = {
            key: ElicitRequest(params=params) for key, params in forms.items()
        }
        return Asked(InputRequiredResult(input_requests=requests, request_state=task_id))
    has_answers = False
    for approval_id, params in forms.items():
        answer = await context.session.elicit_form(
            params.message, params.requested_schema, related_request_id=context.request_id
        )
        has_answers |= await record(api, approval_id, answer)
    return Asked(has_answers=has_answers)


def message(approval: Document) -> str | None:
    """Return a question as text, with the action that it is about; None if it is too long to be shown."""
    place = f"{approval['workflow']}, step {approval['step']}"
    text = harmless(f"{approval['message'] or 'A step asks for your decision.'}\n({place})")
    request = approval["request"]
    if isinstance(request, dict):
        request = {key: request[key] for key in request if key != "message"}
        if request.get("kind") in ("approval", "input"):
            # These steps do nothing else than to ask.
            del request["kind"]
    if request:
        text += f"\n{harmless_json(request, indent=1)}"
    return text if len(text) <= _MAX_SHOWN else None


def form(approval: Document) -> Document:
    """Return the form of a question, as clients show them: an object of plain members."""
    if approval["kind"] not in ("input", "unknown"):
        members: Document = {
            "decision": {"type": "string", "enum": ["approve", "deny"]},
            "comment": {"type": "string", "description": "a comment, or the reason"},
        }
        return {"type": "object", "properties": members, "required": ["decision"]}
    if approval["kind"] == "unknown":
        member: Document = {"type": "string", "enum": ["done", "retry", "fail"]}
    elif approval["choices"]:
        member = {"type": "string", "enum": [_as_text(choice) for choice in approval["choices"]]}
    else:
        schema = approval["schema"] or {"type": "string"}
        if _is_flat(schema):
            return {
                "type": "object",
                "properties": schema["properties"],
                "required": list(schema.get("required", [])),
            }
        member = schema if _is_plain(schema) else _AS_JSON
    return {"type": "object", "properties": {"answer": member}, "required": ["answer"]}


def _is_flat(schema: Document) -> bool:
    properties = schema.get("properties")
    return (
        isinstance(properties, dict)
        and all(isinstance(member, dict) and _is_plain(member) for member in properties.values())
        and _hides_nothing(schema)
    )


def _is_plain(schema: Document) -> bool:
    return schema.get("type") in _PLAIN and _hides_nothing(schema)


def _hides_nothing(schema: Document) -> bool:
    """Whether a client may show a schema as it is: escapes in it would change what it accepts."""
    return harmless_json(schema) == json.dumps(schema, ensure_ascii=False)


async def record(api: Api, approval_id: str, response: Any) -> bool:
    """Send a person's answer to the API; return whether there was one.

    A form that was declined or dismissed leaves the question open. So does one that another
    person has answered meanwhile: the first answer counts.
    """
    from mcp_types import ElicitResult

    if not isinstance(response, ElicitResult) or response.action != "accept":
        return False
    approval = await _approval(api, approval_id)
    verb, body = decision(approval, response)
    try:
        await api.call(
            ApiRequest("POST", path(_API, "approvals", approval_id, verb), body=body, has_body=True)
        )
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
    return True


def decision(approval: Document, response: "ElicitResult") -> tuple[str, Document]:
    """Return the route and the body of an answer; the API checks them."""
    content = response.content or {}
    if approval["kind"] not in ("input", "unknown"):
        comment = content.get("comment") or None
        if content.get("decision") == "approve":
            return "approve", {"comment": comment}
        if content.get("decision") == "deny":
            return "deny", {"reason": comment}
        raise ApiError(422, {"detail": "the form has no decision: approve or deny"})
    schema = approval["schema"] or {"type": "string"}
    if approval["kind"] == "input" and not approval["choices"] and _is_flat(schema):
        return "answer", {"value": dict(content)}
    value: Any = content.get("answer")
    if approval["choices"] and approval["kind"] == "input":
        by_text = {_as_text(choice): choice for choice in approval["choices"]}
        value = by_text.get(str(value), value)
    elif approval["kind"] == "input" and not _is_plain(schema):
        value = _parsed(value)
    return "answer", {"value": value}


def _parsed(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError, RecursionError):
        raise ApiError(422, {"detail": "the answer is not a value in JSON"}) from None


def _as_text(value: Any) -> str:
    return harmless(value) if isinstance(value, str) else harmless_json(value)


async def _approval(api: Api, approval_id: str) -> Document:
    document: Document = await api.call(ApiRequest("GET", path(_API, "approvals", approval_id)))
    return document
