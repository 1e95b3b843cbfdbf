"""The `echo` provider, for examples and tests: it needs no key and repeats the prompt, marked as an echo.

A first message with a block

    ```echo
    ["a first answer", {"text": "", "tool_uses": [{"name": "look", "arguments": {}}]}, "the last"]
    ```

is answered from that list, by the number of answers so far, so that a conversation takes the same
course in every attempt. An entry may also be `{"stop_reason": "refusal"}` or `{"tokens_out": 9}`.
Without a block it returns the message, or, for a request for JSON, an example value of the schema.
"""

import json
import re
from typing import Any, Final

from agent.models import response_parsing
from agent.models.errors import ModelError
from agent.models.protocol import ModelRequest, Reply, StopReason, ToolUse, clean
from agent.models.registry import Model

LABEL: Final = "[echo]"
_BYTES_PER_TOKEN: Final = 4
_SCRIPT: Final = re.compile(r"```echo[^\S\n]*\n(.*?)```", re.DOTALL)


class EchoConnector:
    """Answers by itself: the same request gets the same answer."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Answer at once."""
        try:
            return self._reply(request, _entry(request))
        except (LookupError, TypeError, AttributeError, ValueError) as problem:
            raise _bad(f"its echo block cannot be followed: {problem!r}") from None

    def _reply(self, request: ModelRequest, entry: dict[str, Any]) -> Reply:
        text = clean(str(entry.get("text", "")))
        uses = tuple(
            ToolUse(
                clean(str(use.get("id") or f"use-{_answer_count(request)}-{number}")),
                clean(use["name"]),
                response_parsing.arguments_of(use.get("arguments", {})),
            )
            for number, use in enumerate(entry.get("tool_uses", ()))
        )
        stopped: StopReason = entry.get("stop_reason") or ("tool_use" if uses else "end")
        prompts = [request.system or "", *(message.text for message in request.messages)]
        tokens_out = entry.get("tokens_out", _tokens(text))
        if tokens_out > request.max_tokens:
            text = text.encode()[: request.max_tokens * _BYTES_PER_TOKEN].decode("utf-8", "ignore")
            stopped, tokens_out = "max_tokens", request.max_tokens
        return Reply(
            text=text,
            stop_reason=stopped,
            model="echo (no model: it repeats the prompt)",
            tool_uses=uses,
            tokens_in=entry.get("tokens_in", sum(map(_tokens, prompts))),
            tokens_out=tokens_out,
            request_id=None,
        )

    async def aclose(self) -> None:
        """Nothing is open."""


def _answer_count(request: ModelRequest) -> int:
    return sum(1 for message in request.messages if message.role == "assistant")


def _entry(request: ModelRequest) -> dict[str, Any]:
    """Return the script's entry for this answer, or an echo."""
    first = request.messages[0].text if request.messages else ""
    script = _SCRIPT.search(first)
    if script is None:
        if request.wants_json:
            return {"text": json.dumps(_example(request.schema or {}, request.schema or {}, 0))}
        last = next((sent.text for sent in reversed(request.messages) if sent.role == "user"), "")
        return {"text": f"{LABEL} {last}"}
    try:
        entries = json.loads(script[1])
    except ValueError as problem:
        raise _bad(f"its echo block is not JSON: {problem}") from None
    if not isinstance(entries, list) or not entries:
        raise _bad("its echo block must be a list of answers")
    entry = entries[min(_answer_count(request), len(entries) - 1)]
    return entry if isinstance(entry, dict) else {"text": entry}


def _example(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    """Return a simple value that most schemas of this kind allow."""
    if "$ref" in schema and depth < 20:
        return _example(_target(str(schema["$ref"]), root), root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _example(schema[key][0], root, depth + 1)
    return _example_of_type(schema, root, depth)


def _target(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    target: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        target = target.get(part, {}) if isinstance(target, dict) else {}
    return target if isinstance(target, dict) else {}


def _example_of_type(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            members = schema.get("properties", {})
            undescribed = [name for name in schema.get("required", ()) if name not in members]
            return {
                name: _example(members.get(name, {"type": "string"}), root, depth + 1)
                for name in (*members, *undescribed)
            }
        case "array":
            item = schema.get("items", {"type": "string"})
            return [_example(item, root, depth + 1) for _ in range(schema.get("minItems", 0))]
        case "string":
            return LABEL
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return None


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def _bad(problem: str) -> ModelError:
    return ModelError("bad_script", "input", f"model echo: {problem}", may_retry=False)
