"""A provider that is none: it needs no key and says back what it was told, marked as an echo.

For examples and tests. A first message with a block

    ```echo
    ["a first answer", {"text": "", "tool_uses": [{"name": "look", "arguments": {}}]}, "the last"]
    ```

is answered from that list, one entry for each answer given so far, so that a conversation goes the
same way however often it is begun again. An entry may also say `{"stop_reason": "refusal"}` or
`{"tokens_out": 9}`. Without a block it gives the message back, or, where JSON is asked for, the
plainest value that the schema allows.
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
    """Answers by itself, the same to the same."""

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
                clean(str(use.get("id") or f"use-{_said(request)}-{number}")),
                clean(use["name"]),
                response_parsing.arguments_of(use.get("arguments", {})),
            )
            for number, use in enumerate(entry.get("tool_uses", ()))
        )
        stopped: StopReason = entry.get("stop_reason") or ("tool_use" if uses else "end")
        told = [request.system or "", *(message.text for message in request.messages)]
        tokens_out = entry.get("tokens_out", _tokens(text))
        if tokens_out > request.max_tokens:
            text = text.encode()[: request.max_tokens * _BYTES_PER_TOKEN].decode("utf-8", "ignore")
            stopped, tokens_out = "max_tokens", request.max_tokens
        return Reply(
            text=text,
            stop_reason=stopped,
            model="echo (no model: it repeats what it is told)",
            tool_uses=uses,
            tokens_in=entry.get("tokens_in", sum(map(_tokens, told))),
            tokens_out=tokens_out,
            request_id=None,
        )

    async def aclose(self) -> None:
        """Nothing is open."""


def _said(request: ModelRequest) -> int:
    return sum(1 for message in request.messages if message.role == "assistant")


def _entry(request: ModelRequest) -> dict[str, Any]:
    """Return what the script says for this answer, or an echo."""
    first = request.messages[0].text if request.messages else ""
    found = _SCRIPT.search(first)
    if found is None:
        if request.wants_json:
            return {"text": json.dumps(_plainest(request.schema or {}, request.schema or {}, 0))}
        last = next((one.text for one in reversed(request.messages) if one.role == "user"), "")
        return {"text": f"{LABEL} {last}"}
    try:
        entries = json.loads(found[1])
    except ValueError as problem:
        raise _bad(f"its echo block is no JSON: {problem}") from None
    if not isinstance(entries, list) or not entries:
        raise _bad("its echo block must be a list of answers")
    entry = entries[min(_said(request), len(entries) - 1)]
    return entry if isinstance(entry, dict) else {"text": entry}


def _plainest(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    """Return a plain value that most schemas of this kind allow."""
    if "$ref" in schema and depth < 20:
        target: Any = root
        for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
            target = target.get(part, {}) if isinstance(target, dict) else {}
        return _plainest(target if isinstance(target, dict) else {}, root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _plainest(schema[key][0], root, depth + 1)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    least = schema.get("minimum", 0)
    match kind:
        case "object":
            members = schema.get("properties", {})
            names = [
                *members,
                *(name for name in schema.get("required", ()) if name not in members),
            ]
            return {
                name: _plainest(members.get(name, {"type": "string"}), root, depth + 1)
                for name in names
            }
        case "array":
            item = schema.get("items", {"type": "string"})
            return [_plainest(item, root, depth + 1) for _ in range(schema.get("minItems", 0))]
        case "string":
            return LABEL
        case "integer" | "number":
            return least
        case "boolean":
            return False
        case _:
            return None


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)


def _bad(problem: str) -> ModelError:
    return ModelError("bad_script", "input", f"model echo: {problem}", may_retry=False)
