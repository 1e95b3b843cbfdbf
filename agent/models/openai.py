"""OpenAI's chat completions, through its SDK: OpenAI itself, and every server that speaks it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import openai

from agent.models.catalog import Model
from agent.models.connector import Message, ModelRequest, Reply, StopReason, ToolUse, clean
from agent.models.errors import (
    ModelError,
    malformed,
    status_error,
    timed_out,
    transport_error,
)
from agent.models.shaping import expressible

PROVIDER: Final = "openai"
_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "end",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class OpenAIConnector:
    """Asks models by the protocol that most servers of models speak."""

    def __init__(self, model: Model, key: str | None) -> None:
        self._model = model
        self._where = f"model {model.name} ({model.base_url or PROVIDER})"
        # The engine owns attempts: a second one inside would be counted and paid by nobody.
        self._client = openai.AsyncOpenAI(
            api_key=key or "none", base_url=model.base_url, max_retries=0
        )

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Ask once."""
        keywords = self._keywords(request)
        create: Any = self._client.chat.completions.with_raw_response.create
        try:
            raw = await create(**keywords, timeout=seconds)
            body, request_id = raw.http_response.text, raw.headers.get("x-request-id")
        except openai.APITimeoutError as problem:
            error = transport_error(problem, self._where)
            raise (error if error.code == "timeout" else timed_out(self._where)) from problem
        except openai.APIConnectionError as problem:
            raise transport_error(problem, self._where) from problem
        except openai.APIStatusError as problem:
            raise status_error(
                problem.status_code,
                problem.response.headers,
                problem.body,
                self._where,
                problem.request_id,
            ) from problem
        except openai.OpenAIError as problem:
            raise malformed(str(problem), self._where) from problem
        return self._reply(body, request_id)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _keywords(self, request: ModelRequest) -> dict[str, Any]:
        messages = list(_messages(request.messages))
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        keywords: dict[str, Any] = {"model": self._model.model, "messages": messages}
        # OpenAI's newer models know only the second name, other servers often only the first.
        bound = "max_tokens" if self._model.base_url else "max_completion_tokens"
        keywords[bound] = request.max_tokens
        if request.effort is not None:
            keywords["reasoning_effort"] = request.effort
        if request.temperature is not None:
            keywords["temperature"] = request.temperature
        if request.stop:
            keywords["stop"] = list(request.stop)
        if request.wants_json and self._model.has_structured_output:
            keywords["response_format"] = _format(request.schema)
        if request.tools:
            keywords["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.schema,
                    },
                }
                for tool in request.tools
            ]
        return keywords

    def _reply(self, body: str, request_id: str | None) -> Reply:
        try:
            document = json.loads(body)
            choice = document["choices"][0]
            message = choice["message"]
            text = clean(message.get("content") or "")
            refusal = message.get("refusal")
            uses = tuple(
                ToolUse(str(use["id"]), use["function"]["name"], _arguments(use["function"]))
                for use in message.get("tool_calls") or ()
            )
            stopped = choice["finish_reason"]
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise self._unlike(f"{type(problem).__name__}: {problem}", request_id) from problem
        if stopped not in _STOPS:
            raise self._unlike(f"it stopped for {stopped!r}", request_id)
        reason = _STOPS[stopped]
        if refusal:
            reason, text = "refusal", clean(str(refusal))
        elif uses:
            # Some servers say "stop" although the model asks for tools.
            reason = "tool_use"
        usage = document.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Reply(
            text=text,
            stop_reason=reason,
            model=str(document.get("model") or self._model.model),
            tool_uses=uses,
            tokens_in=_count(usage, "prompt_tokens"),
            tokens_out=_count(usage, "completion_tokens"),
            request_id=request_id or _text(document.get("id")),
            native=None,
        )

    def _unlike(self, problem: str, request_id: str | None) -> ModelError:
        return malformed(problem, self._where, request_id)


def _format(schema: dict[str, Any] | None) -> dict[str, Any]:
    shaped = expressible(schema) if schema is not None else None
    if shaped is None:
        return {"type": "json_object"}
    # Strict output would demand every property: ours may be optional, and we check in any case.
    named = {"name": "answer", "schema": shaped, "strict": False}
    return {"type": "json_schema", "json_schema": named}


def _messages(messages: Iterable[Message]) -> Iterable[dict[str, Any]]:
    for message in messages:
        if message.role == "tool":
            yield {
                "role": "tool",
                "tool_call_id": message.tool_use_id,
                "content": message.text,
            }
            continue
        written: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_uses:
            written["content"] = message.text or None
            written["tool_calls"] = [
                {
                    "id": use.id,
                    "type": "function",
                    "function": {"name": use.name, "arguments": _written(use.arguments)},
                }
                for use in message.tool_uses
            ]
        yield written


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _arguments(function: Mapping[str, Any]) -> Any:
    """Read a tool use's arguments; what is no JSON object stays the text that it is."""
    text = function["arguments"]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return clean(text)
    return found if isinstance(found, dict) else clean(text)


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    count = usage.get(name)
    return count if isinstance(count, int) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
