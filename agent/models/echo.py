"""The `echo` provider, for examples and tests: it needs no key and repeats the prompt, marked as an echo.

A first message with a block

    ```echo
    ["a first answer", {"text": "", "tool_uses": [{"name": "look", "arguments": {}}]}, "the last"]
    ```

is answered from that list, by the number of answers since that message, so that a loop takes the same
course in every attempt. An entry may also be `{"stop_reason": "refusal"}` or `{"tokens_out": 9}`.

A block in the system prompt scripts a conversation: an object of patterns, each with its list of
answers. The first pattern that occurs in the person's last message decides. In the answers, `{1}` is
what a group of the pattern matched, `{text}` the message, and `{tool}` what the last tool answered;
`{tool:name,status}` is these members of each object in that answer, a line for each.

Without a block it returns the message, or, for a request for JSON, an example value of the schema.
"""

import json
import re
from typing import Any, Final

from agent.models import response_parsing
from agent.models.errors import ModelError
from agent.models.protocol import Message, ModelRequest, Reply, StopReason, ToolUse, clean
from agent.models.registry import Model
from agent.workflows.schema_cost import find_target

LABEL: Final = "[echo]"
_BYTES_PER_TOKEN: Final = 4
_MARKS: Final = re.compile(r"\A<untrusted>\n|\n</untrusted>\Z")
_PLACE: Final = re.compile(r"\{(\w+)(?::([\w,]+))?\}")
_SCRIPT: Final = re.compile(r"```echo[^\S\n]*\n(.*?)```", re.DOTALL)


class EchoConnector:
    """Answers by itself: the same request gets the same answer."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def complete(self, request: ModelRequest, seconds: float) -> Reply:
        """Answer at once."""
        try:
            return self._reply(request, _entry(request))
        except (LookupError, TypeError, AttributeError, ValueError, re.error) as error:
            raise _bad(f"its echo block cannot be followed: {error!r}") from None

    def _reply(self, request: ModelRequest, entry: dict[str, Any]) -> Reply:
        text = clean(str(entry.get("text", "")))
        uses = tuple(
            ToolUse(
                clean(str(use.get("id") or f"use-{_answer_count(request.messages)}-{number}")),
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


def _answer_count(messages: tuple[Message, ...]) -> int:
    return sum(1 for message in messages if message.role == "assistant")


def _entry(request: ModelRequest) -> dict[str, Any]:
    """Return the script's entry for this answer, or an echo."""
    messages = request.messages
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    for place in reversed(places):
        if script := _SCRIPT.search(messages[place].text):
            return _scripted(_parsed(script[1]), messages[place:])
    last = messages[places[-1]].text if places else ""
    script = _SCRIPT.search(request.system or "")
    rules = _parsed(script[1]) if script is not None else {}
    if not isinstance(rules, dict):
        raise _bad("its echo block in a system prompt must be an object: patterns with answers")
    for pattern, entries in rules.items():
        if match := re.search(pattern, last, re.IGNORECASE):
            entry = _scripted(entries, messages[places[-1] :])
            filled: dict[str, Any] = _filled(entry, match, messages)
            return filled
    if request.wants_json:
        return {"text": json.dumps(_example(request.schema or {}, request.schema or {}, 0))}
    return {"text": f"{LABEL} {last}"}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _bad(f"its echo block is not JSON: {error}") from None


def _scripted(entries: Any, messages: tuple[Message, ...]) -> dict[str, Any]:
    """Return the entry for the next answer after the first of these messages."""
    if not isinstance(entries, list) or not entries:
        raise _bad("its echo block must be a list of answers")
    entry = entries[min(_answer_count(messages), len(entries) - 1)]
    return entry if isinstance(entry, dict) else {"text": entry}


def _filled(value: Any, match: re.Match[str], messages: tuple[Message, ...]) -> Any:
    """Fill in what a pattern matched and what the last tool answered."""
    if isinstance(value, dict):
        return {key: _filled(inner, match, messages) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, match, messages) for inner in value]
    if not isinstance(value, str):
        return value
    answers = [message.text for message in messages if message.role == "tool"]
    tool = _MARKS.sub("", answers[-1]) if answers else ""
    words = {"text": match.string, "tool": tool}
    words |= {str(number): group or "" for number, group in enumerate(match.groups(), 1)}

    def fill(place: re.Match[str]) -> str:
        name, members = place.groups()
        if name == "tool" and members:
            return _table(tool, members.split(","))
        return words.get(name, place[0])

    return _PLACE.sub(fill, value)


def _table(text: str, members: list[str]) -> str:
    """Return members of the objects in a tool's answer, a line for each object."""
    try:
        answer = json.loads(text)
    except ValueError:
        return text
    if isinstance(answer, dict):
        lists = [value for value in answer.values() if isinstance(value, list)]
        if not lists:
            return _line(answer, members)
        answer = lists[0]
    rows = [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else []
    return "\n".join(f"- {_line(row, members)}" for row in rows) or "(nothing)"


def _line(row: dict[str, Any], members: list[str]) -> str:
    return ", ".join(str(row[name]) for name in members if row.get(name))


def _example(schema: dict[str, Any], root: dict[str, Any], depth: int) -> Any:
    """Return a simple value that most schemas of this kind allow."""
    if "$ref" in schema and depth < 20:
        target = find_target(str(schema["$ref"]), root)
        return _example(target if isinstance(target, dict) else {}, root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _example(schema[key][0], root, depth + 1)
    return _example_of_type(schema, root, depth)


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
