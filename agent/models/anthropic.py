"""Anthropic's Messages API, through its SDK."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import anthropic

from agent.models.catalog import Model
from agent.models.connector import Message, ModelRequest, Reply, StopReason, ToolUse, clean
from agent.models.errors import (
    ModelError,
    malformed,
    status_error,
    timed_out,
    transport_error,
    unsupported,
)
from agent.models.shaping import expressible

PROVIDER: Final = "anthropic"
_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "stop",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_exceeded",
}


class AnthropicConnector:
    """Asks models of Anthropic, and of servers that speak its protocol."""

    def __init__(self, model: Model, key: str | None) -> None:
        self._model = model
        self._where = f"model {model.name} ({model.base_url or PROVIDER})"
        # The engine owns attempts: a second one inside would be counted and paid by nobody.
        self._client = anthropic.AsyncAnthropic(
            api_key=key or "none", base_url=model.base_url, max_retries=0
        )

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Ask once."""
        keywords = self._keywords(request)
        create: Any = self._client.messages.with_raw_response.create
        try:
            raw = await create(**keywords, timeout=seconds)
            body, request_id = raw.http_response.text, raw.headers.get("request-id")
        except anthropic.APITimeoutError as problem:
            error = transport_error(problem, self._where)
            raise (error if error.code == "timeout" else timed_out(self._where)) from problem
        except anthropic.APIConnectionError as problem:
            raise transport_error(problem, self._where) from problem
        except anthropic.APIStatusError as problem:
            raise status_error(
                problem.status_code,
                problem.response.headers,
                problem.body,
                self._where,
                problem.request_id,
            ) from problem
        except anthropic.AnthropicError as problem:
            raise malformed(str(problem), self._where) from problem
        return self._reply(body, request_id)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _keywords(self, request: ModelRequest) -> dict[str, Any]:
        if request.temperature is not None:
            raise unsupported(
                f"{self._where} takes no temperature: leave it out, or set `effort` instead"
            )
        keywords: dict[str, Any] = {
            "model": self._model.model,
            "max_tokens": request.max_tokens,
            "messages": list(_messages(request.messages)),
        }
        if request.system:
            keywords["system"] = request.system
        if request.stop:
            keywords["stop_sequences"] = list(request.stop)
        output: dict[str, Any] = {}
        if request.effort is not None:
            output["effort"] = request.effort
        schema = expressible(request.schema) if request.schema is not None else None
        if schema is not None and self._model.has_structured_output:
            output["format"] = {"type": "json_schema", "schema": schema}
        if output:
            keywords["output_config"] = output
        if request.tools:
            keywords["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        return keywords

    def _reply(self, body: str, request_id: str | None) -> Reply:
        try:
            document = json.loads(body)
            blocks = document["content"]
            texts = [block["text"] for block in blocks if block["type"] == "text"]
            uses = tuple(
                ToolUse(str(block["id"]), str(block["name"]), block["input"])
                for block in blocks
                if block["type"] == "tool_use"
            )
            stopped = document["stop_reason"]
            text = clean("".join(texts))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise self._unlike(f"{type(problem).__name__}: {problem}", request_id) from problem
        if stopped not in _STOPS:
            raise self._unlike(f"it stopped for {stopped!r}", request_id)
        usage = document.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Reply(
            text=text,
            stop_reason=_STOPS[stopped],
            model=str(document.get("model") or self._model.model),
            tool_uses=uses,
            tokens_in=_sum(
                usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"
            ),
            tokens_out=_sum(usage, "output_tokens"),
            request_id=request_id,
            native={"provider": PROVIDER, "content": blocks},
        )

    def _unlike(self, problem: str, request_id: str | None) -> ModelError:
        return malformed(problem, self._where, request_id)


def _sum(usage: Mapping[str, Any], first: str, *others: str) -> int | None:
    """Add up counts of tokens; None when even the first is not told."""
    counts = [usage.get(name) for name in (first, *others)]
    if not isinstance(counts[0], int):
        return None
    return sum(count for count in counts if isinstance(count, int))


def _messages(messages: Iterable[Message]) -> Iterable[dict[str, Any]]:
    """Write a conversation; the answers to tool uses of one turn go into one message."""
    results: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            result: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": message.tool_use_id,
                "content": message.text,
            }
            if message.is_error:
                result["is_error"] = True
            results.append(result)
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        yield {"role": message.role, "content": _content(message)}
    if results:
        yield {"role": "user", "content": results}


def _content(message: Message) -> Any:
    native = message.native
    if isinstance(native, dict) and native.get("provider") == PROVIDER:
        return native["content"]
    if not message.tool_uses:
        return message.text
    uses = [
        {"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments}
        for use in message.tool_uses
    ]
    return [{"type": "text", "text": message.text}, *uses] if message.text else uses
