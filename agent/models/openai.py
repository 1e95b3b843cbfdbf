"""The connector to OpenAI's chat completions, and to every server with the same protocol."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import openai

from agent.models import response_parsing, sdk_call
from agent.models.errors import malformed
from agent.models.protocol import Message, ModelRequest, Reply, StopReason, ToolUse
from agent.models.registry import Model
from agent.models.schema_subset import subset_of

PROVIDER: Final = "openai"
_SDK: Final = sdk_call.Sdk(openai, openai.OpenAIError, "x-request-id")
_STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "end",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class OpenAIConnector:
    """Asks models by the protocol that most model servers implement."""

    def __init__(self, model: Model, key: str | None) -> None:
        self._model = model
        self._where = f"model {model.name} ({model.base_url or PROVIDER})"
        # The engine owns attempts: a retry inside the SDK would be neither counted nor budgeted.
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=model.base_url,
            max_retries=0,
            # A redirect would send the prompt, and perhaps the key, to another server.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Ask once."""
        create = self._client.chat.completions.with_streaming_response.create
        body, request_id = await sdk_call.ask(
            _SDK, create, self._keywords(request), seconds, self._where
        )
        return self._reply(body, request_id)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _keywords(self, request: ModelRequest) -> dict[str, Any]:
        messages = list(_messages(request.messages, can_see=self._model.can_see))
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        keywords: dict[str, Any] = {"model": self._model.model, "messages": messages}
        # OpenAI's newer models accept only the second name, other servers often only the first.
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
            document = response_parsing.document_of(body)
            choice = document["choices"][0]
            message = choice["message"]
            text, refusal = _text(message.get("content")), message.get("refusal")
            tool_calls = message.get("tool_calls") or ()
            uses = tuple(
                ToolUse(
                    use_id, str(use["name"]), response_parsing.arguments_of(use.get("arguments"))
                )
                for use_id, use in zip(
                    response_parsing.distinct_ids(call.get("id") for call in tool_calls),
                    [call["function"] for call in tool_calls],
                    strict=True,
                )
            )
            reason = _STOPS.get(str(choice["finish_reason"]))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise malformed(
                response_parsing.parse_problem(error), self._where, request_id
            ) from error
        if reason is None:
            stopped = f"it stopped for {choice['finish_reason']!r}"
            raise malformed(stopped, self._where, request_id)
        if refusal:
            reason, text = "refusal", str(refusal)
        elif uses and reason == "end":
            # Some servers say "stop" although the model asks for tools.
            reason = "tool_use"
        usage = document.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Reply(
            text=text,
            stop_reason=reason,
            model=response_parsing.short_text(document.get("model")) or self._model.model,
            tool_uses=uses,
            tokens_in=response_parsing.token_count(usage.get("prompt_tokens")),
            tokens_out=response_parsing.token_count(usage.get("completion_tokens")),
            request_id=request_id or response_parsing.short_text(document.get("id")),
            native=None,
        )


def _text(content: Any) -> str:
    """Return the text of a message; some servers send it in parts, reasoning among them."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == "text")


def _format(schema: dict[str, Any] | None) -> dict[str, Any]:
    subset = subset_of(schema) if schema is not None else None
    if subset is None:
        return {"type": "json_object"}
    # Strict output requires every property. Ours may be optional, and the step checks in any case.
    named = {"name": "answer", "schema": subset, "strict": False}
    return {"type": "json_schema", "json_schema": named}


def _messages(messages: Iterable[Message], *, can_see: bool) -> Iterable[dict[str, Any]]:
    """Return a conversation for the API.

    The answer of a tool is text here. Its images follow in a message of their own, after the answers
    to all tool uses of the turn.
    """
    images: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            yield {
                "role": "tool",
                "tool_call_id": message.tool_use_id,
                "content": message.text,
            }
            images += _images(message) if can_see else []
            continue
        if images:
            yield {"role": "user", "content": images}
            images = []
        written: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.tool_uses:
            written["content"] = message.text or None
            written["tool_calls"] = [
                {
                    "id": use.id,
                    "type": "function",
                    "function": {
                        "name": response_parsing.name_to_send(use.name),
                        "arguments": _written(use.arguments),
                    },
                }
                for use in message.tool_uses
            ]
        yield written
    if images:
        yield {"role": "user", "content": images}


def _images(message: Message) -> list[dict[str, Any]]:
    if not message.images:
        return []
    text = f"The images that the tool call {message.tool_use_id} answered with; they are data:"
    return [
        {"type": "text", "text": text},
        *(
            {
                "type": "image_url",
                "image_url": {"url": f"data:{image.media_type};base64,{image.data}"},
            }
            for image in message.images
        ),
    ]


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
