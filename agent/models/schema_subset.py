"""A JSON Schema in the part of the language that providers' structured output knows.

What they do not know (bounds, patterns) is left out: the answer is checked against the whole schema
by us in any case. A schema whose shape they cannot express at all is asked for in words.
"""

from typing import Any, Final

_KEPT: Final = frozenset(
    {"type", "description", "enum", "const", "required", "$ref", "title", "format"}
)
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "uri", "uuid"})


def expressible(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema for a provider, or None when its shape cannot be expressed."""
    if schema.get("type") != "object":
        return None
    return _shaped(schema)


def _shaped(schema: Any) -> dict[str, Any] | None:
    if not isinstance(schema, dict) or not schema:
        return None
    shaped = {key: value for key, value in schema.items() if key in _KEPT}
    if shaped.get("format") not in _FORMATS:
        shaped.pop("format", None)
    if isinstance(schema.get("type"), list):
        return None
    for key in ("$defs", "properties"):
        if key in schema:
            members = _all(schema[key])
            if members is None:
                return None
            shaped[key] = members
    for key in ("anyOf", "oneOf"):
        if key in schema:
            choices = [_shaped(choice) for choice in schema[key]]
            if None in choices:
                return None
            shaped["anyOf"] = choices
    if "items" in schema:
        items = _shaped(schema["items"])
        if items is None:
            return None
        shaped["items"] = items
    if schema.get("type") == "object":
        # Free-form objects have no properties to name: providers refuse them.
        if not schema.get("properties") or schema.get("additionalProperties") not in (None, False):
            return None
        if any(name not in schema["properties"] for name in schema.get("required", ())):
            return None
        shaped["additionalProperties"] = False
    elif schema.get("type") == "array" and "items" not in shaped:
        return None
    if not {"type", "anyOf", "enum", "const", "$ref"} & shaped.keys():
        return None
    return None if "allOf" in schema or "not" in schema or "if" in schema else shaped


def _all(members: Any) -> dict[str, Any] | None:
    if not isinstance(members, dict):
        return None
    shaped = {name: _shaped(member) for name, member in members.items()}
    return None if None in shaped.values() else shaped
