"""The connector to Anthropic's Messages API, through its SDK."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import anthropic

from agent.models import response_parsing, sdk_call
from agent.models.errors import malformed, unsupported
from agent.models.protocol import Message, ModelRequest, Reply, StopReason, ToolUse
from agent.models.registry import Model
from agent.models.schema_subset import subset_of

PROVIDER: Final = "anthropic"
_SDK: Final = sdk_call.Sdk(anthropic, anthropic.AnthropicError, "request-id")
_STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "stop",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_exceeded",
}


class AnthropicConnector:
    """Asks models of Anthropic, and of servers with the same protocol."""

    def __init__(self, model: Model, key: str | None) -> None:
        self._model = model
        self._where = f"model {model.name} ({model.base_url or PROVIDER})"
        # The engine owns attempts: a retry inside the SDK would be neither counted nor budgeted.
        self._client = anthropic.AsyncAnthropic(
            api_key=key or "none",
            base_url=model.base_url,
            max_retries=0,
            # A redirect would send the prompt, and perhaps the key, to another server.
            http_client=anthropic.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Ask once."""
        create = self._client.messages.with_streaming_response.create
        body, request_id = await sdk_call.ask(
            _SDK, create, self._keywords(request), seconds, self._where
        )
        return self._reply(body, request_id)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _keywords(self, request: ModelRequest) -> dict[str, Any]:
        if request.temperature is not None:
            raise unsupported(
                f"{self._where} accepts no temperature: leave it out, or set `effort` instead"
            )
        if request.effort == "minimal":
            raise unsupported(f"{self._where} has no effort below low")
        keywords: dict[str, Any] = {
            "model": self._model.model,
            "max_tokens": request.max_tokens,
            "messages": list(_messages(request.messages, can_see=self._model.can_see)),
        }
        if request.system:
            keywords["system"] = request.system
        if request.stop:
            keywords["stop_sequences"] = list(request.stop)
        output: dict[str, Any] = {}
        if request.effort is not None:
            output["effort"] = request.effort
        schema = subset_of(request.schema) if request.schema is not None else None
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
            document = response_parsing.document_of(body)
            blocks = _blocks(document["content"])
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            tool_uses = [block for block in blocks if block["type"] == "tool_use"]
            uses = tuple(
                ToolUse(block["id"], block["name"], arguments)
                for block, arguments in zip(
                    tool_uses, response_parsing.inputs_of(body, document), strict=True
                )
            )
            reason = _STOPS.get(str(document["stop_reason"]))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise malformed(
                response_parsing.parse_problem(error), self._where, request_id
            ) from error
        if reason is None:
            stopped = f"it stopped for {document['stop_reason']!r}"
            raise malformed(stopped, self._where, request_id)
        usage = document.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return Reply(
            text=text,
            stop_reason=reason,
            model=response_parsing.short_text(document.get("model")) or self._model.model,
            tool_uses=uses,
            tokens_in=_sum(
                usage, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"
            ),
            tokens_out=_sum(usage, "output_tokens"),
            request_id=request_id,
            native={"provider": PROVIDER, "content": blocks},
        )


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of a response, so that they can be sent back and their tool uses answered."""
    blocks = [block for block in content if block.get("type") != "text" or block["text"]]
    ids = response_parsing.distinct_ids(
        block.get("id") for block in blocks if block["type"] == "tool_use"
    )
    return [
        {**block, "id": next(ids), "name": str(block["name"])}
        if block["type"] == "tool_use"
        else block
        for block in blocks
    ]


def _sum(usage: Mapping[str, Any], first: str, *others: str) -> int | None:
    """Add up counts of tokens; None when the first is missing."""
    counts = [response_parsing.token_count(usage.get(name)) for name in (first, *others)]
    return None if counts[0] is None else sum(count or 0 for count in counts)


def _messages(messages: Iterable[Message], *, can_see: bool) -> Iterable[dict[str, Any]]:
    """Return a conversation for the API; the answers to tool uses of one turn go into one message."""
    results: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            result: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": message.tool_use_id,
                "content": _result_content(message) if can_see else message.text,
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


def _result_content(message: Message) -> Any:
    if not message.images:
        return message.text
    images = [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": image.media_type, "data": image.data},
        }
        for image in message.images
    ]
    return [{"type": "text", "text": message.text}, *images]


def _content(message: Message) -> Any:
    native = message.native
    if isinstance(native, dict) and native.get("provider") == PROVIDER:
        return [
            {**block, "name": response_parsing.name_to_send(block["name"])}
            if block["type"] == "tool_use"
            else block
            for block in native["content"]
        ]
    if not message.tool_uses:
        return message.text
    uses = [
        {
            "type": "tool_use",
            "id": use.id,
            "name": response_parsing.name_to_send(use.name),
            "input": use.arguments,
        }
        for use in message.tool_uses
    ]
    return [{"type": "text", "text": message.text}, *uses] if message.text else uses
