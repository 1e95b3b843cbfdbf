"""Functions that read untrusted input: each accepts it, or rejects it with a message.

Every target is given bytes of any kind and raises nothing: an exception that gets out is a finding.
The properties here feed them, and so does atheris in `make fuzz`.
"""

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastapi.dependencies.utils import get_dependant
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request

from agent.channels.secret_ref import SecretError
from agent.config.models import ModelSettings
from agent.models.anthropic import AnthropicConnector
from agent.models.errors import ModelError
from agent.models.openai import OpenAIConnector
from agent.models.registry import model_of
from agent.server import application
from agent.server.access import webhook_signatures
from agent.server.access.webhook_signatures import SignatureError
from agent.server.problems import Problem, problem_of
from agent.server.requests.request_args import RequestArgs
from agent.server.schemas.base import RequestDocument, models_by_name
from agent.steps.kinds.llm.model_output import InvalidOutput, read_answer
from agent.store.db.json_values import encode
from agent.workflows.compile.compiler import compile_text
from agent.workflows.compile.triggers import ScheduleKeys
from agent.workflows.diagnostics import WorkflowError, show
from agent.workflows.durations import parse_duration
from agent.workflows.templates.templates import TemplateError, evaluate, render

ROOT: Final = Path(__file__).parent.parent.parent
NOW_US: Final = 1_800_000_000_000_000
_MOST_CHARACTERS: Final = 20_000
_SECRET: Final = "whsec_" + base64.b64encode(b"a secret of some length").decode()
_HEADERS: Final = (
    *("webhook-id", "webhook-timestamp", "webhook-signature", "x-hub-signature-256"),
    *("x-github-delivery", "stripe-signature", "x-slack-signature", "authorization"),
)
_REQUEST: Final[dict[str, Any]] = {
    "type": "http",
    "method": "POST",
    "path": "/",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
    "path_params": {},
}
_SCOPE: Final[dict[str, Any]] = {
    "steps": {"fetch": {"output": {"items": [1, "two", None], "count": 3}, "status": "succeeded"}},
    "inputs": {"name": "Ada", "limit": 500},
    "item": {"id": 7},
}
_SCHEMA: Final = {
    "type": "object",
    "required": ["vendor", "amount"],
    "properties": {"vendor": {"type": "string"}, "amount": {"type": "number"}},
}


def _check_message(text: str) -> None:
    """A message is for a person: it says something, it is bounded, and it shows no traceback."""
    assert text.strip()
    assert "Traceback" not in text
    assert len(text) < _MOST_CHARACTERS, len(text)


def workflow(given: bytes) -> None:
    """Compile the text of a workflow file."""
    try:
        graph = compile_text(given, "it.yaml")
    except WorkflowError as error:
        _check_message(show(error.problems))
    else:
        # What is accepted can be kept and read again.
        assert type(graph).model_validate_json(graph.text) == graph


def template(given: bytes) -> None:
    """Render a template."""
    try:
        render(_text(given), _SCOPE)
    except TemplateError as error:
        _check_message(str(error))


def expression(given: bytes) -> None:
    """Evaluate a condition."""
    try:
        evaluate(_text(given), _SCOPE)
    except TemplateError as error:
        _check_message(str(error))


def duration(given: bytes) -> None:
    """Read a duration."""
    try:
        assert parse_duration(_text(given)) >= 0
    except ValueError as error:
        _check_message(str(error))


def cron(given: bytes) -> None:
    """Read a cron expression."""
    try:
        ScheduleKeys(cron=_text(given))
    except ValidationError as error:
        _check_message(str(error))


def answer(given: bytes) -> None:
    """Read a model's answer."""
    found = read_answer(_text(given), is_json=True, schema=_SCHEMA, limit_bytes=10_000)
    if isinstance(found, InvalidOutput):
        _check_message(found.error.message)


def reply(given: bytes) -> None:
    """Read what a provider of models sent: whatever is taken can be kept and sent back."""
    for connector in _connectors():
        try:
            found = connector._reply(_text(given), None)
        except ModelError as error:
            _check_message(str(error))
        else:
            encode([asdict(use) for use in found.tool_uses], "it")
            encode([found.text, found.model, found.native], "it")
            ids = [use.id for use in found.tool_uses]
            assert len(set(ids)) == len(ids), ids


@cache
def _connectors() -> tuple[OpenAIConnector, AnthropicConnector]:
    one, other = (
        model_of(name, ModelSettings(provider=name, model="m")) for name in ("openai", "anthropic")
    )
    return OpenAIConnector(one, "key"), AnthropicConnector(other, "key")


def body(given: bytes) -> None:
    """Take the body of a request to the HTTP API, as each route that has one would."""
    for taking in _bodies():
        try:
            _run(taking(Request(_REQUEST, _receiving(given))))
        except (RequestValidationError, Problem) as error:
            problem = problem_of(error)
            assert problem.status_code in (400, 422)
            # The places that are named are the sender's own keys, however long.
            _check_message(problem.detail[: _MOST_CHARACTERS // 2])
            assert problem.response().body


@cache
def _bodies() -> tuple[RequestArgs, ...]:
    # The routes load every document class.
    assert application.ROUTES
    models = [model for model in models_by_name().values() if issubclass(model, RequestDocument)]
    assert len(models) > 5

    def args_of(model: Any) -> RequestArgs:
        def route(body: Any) -> None: ...

        route.__annotations__["body"] = model
        return RequestArgs(get_dependant(path="/", call=route))

    return tuple(map(args_of, models))


def _receiving(content: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


def _run(work: Coroutine[Any, Any, Any]) -> None:
    """Run what never has to wait, without a loop."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")


def delivery(given: bytes) -> None:
    """Verify a webhook by every scheme: with headers out of nowhere, and properly signed."""
    head, _, body = given.partition(b"\n")
    wild = head.decode("latin-1")
    stamp = str(NOW_US // 1_000_000)
    for preset in webhook_signatures.PRESETS:
        _verify(preset, _SECRET, dict.fromkeys(_HEADERS, wild), body)
        _verify(preset, wild or "x", _signed(preset, stamp, wild, body), body)
        _verify(preset, _SECRET, _signed(preset, stamp, wild, body), body)


def _verify(preset: str, secret: str, headers: dict[str, str], body: bytes) -> None:
    try:
        webhook_signatures.verify(preset, secret, headers, body, NOW_US)
    except (SignatureError, SecretError) as error:
        _check_message(str(error))


def _signed(preset: str, stamp: str, name: str, body: bytes) -> dict[str, str]:
    """Return the headers with which a sender would sign this body, whatever is in it."""
    key = base64.b64decode(_SECRET.removeprefix("whsec_"))
    standard = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()

    def hexed(signed: bytes) -> str:
        return hmac.new(_SECRET.encode(), signed, hashlib.sha256).hexdigest()

    return {
        "standard": {
            "webhook-id": name,
            "webhook-timestamp": stamp,
            "webhook-signature": "v1," + base64.b64encode(standard).decode(),
        },
        "github": {"x-hub-signature-256": "sha256=" + hexed(body), "x-github-delivery": name},
        "stripe": {"stripe-signature": f"t={stamp},v1=" + hexed(f"{stamp}.".encode() + body)},
        "slack": {
            "x-slack-request-timestamp": stamp,
            "x-slack-signature": "v0=" + hexed(f"v0:{stamp}:".encode() + body),
        },
        "token": {"authorization": f"Bearer {_SECRET}", "webhook-id": name},
    }[preset]


def _text(given: bytes) -> str:
    # Texts come from YAML and JSON, which may hold lone surrogates: bytes that are no UTF-8 become some.
    return given.decode("utf-8", "surrogateescape")


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "workflow": workflow,
    "template": template,
    "expression": expression,
    "duration": duration,
    "cron": cron,
    "answer": answer,
    "reply": reply,
    "body": body,
    "delivery": delivery,
}


def good(target: str) -> list[bytes]:
    """Return good input for a target, from which bad input is made."""
    if target == "workflow":
        return [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.yaml"))]
    return [text.encode() for text in _GOOD[target]]


_GOOD: Final[dict[str, tuple[str, ...]]] = {
    "template": (
        "{{ steps.fetch.output['items'] | map('string') | join(', ') }}",
        "Pay {{ inputs.limit }} to {{ inputs.name | upper }}?",
        "{% for each in range(3) %}{{ each }}{% if not loop.last %},{% endif %}{% endfor %}",
        "{{ 'a' * 3 ~ item.id ** 2 }}",
    ),
    "expression": (
        "steps.fetch.output.count <= inputs.limit and item.id in [1, 7]",
        "steps.fetch.status == 'succeeded'",
    ),
    "duration": ("1h30m", "500ms", "2w3d", "0.5s"),
    "cron": ("0 8 * * 1-5", "*/15 0,12 1-7 JAN-MAR MON#2", "@daily", "0 0 L * *"),
    "answer": (
        '{"vendor": "ACME", "amount": 12.5, "lines": [{"text": "a", "n": 1}]}',
        'Here it is:\n```json\n{"vendor": "ACME", "amount": 1e3}\n```\nAnything else?',
    ),
    "reply": (
        '{"id": "c", "model": "m", "choices": [{"finish_reason": "tool_calls", "message": {"content":'
        ' "so", "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": "{\\"n\\": 1}"}},'
        ' {"id": "a", "function": {"name": "look", "arguments": ""}}]}}], "usage": {"prompt_tokens":'
        ' 3, "completion_tokens": 2}}',
        '{"id": "c", "model": "m", "stop_reason": "tool_use", "content": [{"type": "text", "text":'
        ' "so"}, {"type": "tool_use", "id": "a", "name": "look", "input": {"n": 1}}], "usage":'
        ' {"input_tokens": 3, "output_tokens": 2}}',
    ),
    "body": (
        '{"input": {"word": "hello", "n": [1, null]}, "priority": "high"}',
        '{"from_step": "ask", "input": {"a": 1}}',
        '{"comment": "so be it", "edits": {"with.amount": 30}}',
        '{"tokens": 500000, "usd": 2.5}',
    ),
    "delivery": (
        'msg_1\n{"type": "invoice.paid", "id": "evt_1", "event_id": "Ev1", "data": [1, null]}',
        'msg_2\n{"type": "url_verification", "challenge": "abc"}',
    ),
}
