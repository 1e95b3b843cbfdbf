"""A JSON Schema in words, for a person who answers a question in a chat."""

from collections.abc import Iterator
from typing import Any, Final

from agent.core.escape import harmless_json

_TYPES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
_BOUNDS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "of at least {} characters",
    "maxLength": "of at most {} characters",
    "minItems": "with at least {} entries",
    "maxItems": "with at most {} entries",
    "pattern": "of the form {}",
    "format": "as a {}",
}
_MAX_DEPTH: Final = 5


def describe(schema: Any, depth: int = 0) -> str:
    """Describe in words the values that a schema allows."""
    if not isinstance(schema, dict):
        return "any value" if schema is not False else "no value"
    if "const" in schema:
        return _shown(schema["const"])
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(map(_shown, schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and depth < _MAX_DEPTH:
            return " or ".join(describe(option, depth + 1) for option in schema[key])
    words = _kinds(schema.get("type"))
    bounds = [text.format(_shown(schema[key])) for key, text in _BOUNDS.items() if key in schema]
    if bounds:
        words += f" ({', '.join(bounds)})"
    if isinstance(schema.get("items"), dict) and depth < _MAX_DEPTH:
        words += f" of: {describe(schema['items'], depth + 1)}"
    if isinstance(schema.get("description"), str):
        words += f" – {schema['description']}"
    members = schema.get("properties")
    if isinstance(members, dict) and members and depth < _MAX_DEPTH:
        words += " with\n" + "\n".join(_members(schema, depth))
    return words


def _members(schema: dict[str, Any], depth: int) -> Iterator[str]:
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    for name, member in schema["properties"].items():
        optional = "" if name in needed else " (may be left out)"
        yield f"{'  ' * depth}• {name}: {describe(member, depth + 1)}{optional}"


def _kinds(kind: Any) -> str:
    names = kind if isinstance(kind, list) else [kind]
    return " or ".join(_TYPES.get(str(name), "a value") for name in names)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else harmless_json(value)
