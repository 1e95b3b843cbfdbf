"""The subset of JSON Schema that the structured output of providers accepts.

Keywords that they do not accept (bounds, patterns) are left out: the step checks the answer against
the whole schema in any case. A schema that the subset cannot express is put into the prompt instead.
"""

from typing import Any, Final

_ACCEPTED: Final = frozenset(
    {"type", "description", "enum", "const", "required", "$ref", "title", "format"}
)
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "uri", "uuid"})
_NOT_EXPRESSIBLE: Final = frozenset({"allOf", "not", "if"})
_TYPED: Final = frozenset({"type", "anyOf", "enum", "const", "$ref"})
"""A schema must have at least one of these keywords."""


class _NotExpressibleError(Exception):
    """The subset has no form for a schema."""


def subset_of(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema for a provider, or None when the subset cannot express it."""
    if schema.get("type") != "object":
        return None
    try:
        return _reduce(schema)
    except _NotExpressibleError:
        return None


def _reduce(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or not schema or _NOT_EXPRESSIBLE & schema.keys():
        raise _NotExpressibleError
    if isinstance(schema.get("type"), list):
        raise _NotExpressibleError
    subset = {key: value for key, value in schema.items() if key in _ACCEPTED}
    if subset.get("format") not in _FORMATS:
        subset.pop("format", None)
    subset |= _reduce_members(schema)
    if schema.get("type") == "object":
        _check_object(schema)
        subset["additionalProperties"] = False
    elif schema.get("type") == "array" and "items" not in subset:
        raise _NotExpressibleError
    if not _TYPED & subset.keys():
        raise _NotExpressibleError
    return subset


def _reduce_members(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords of a schema that hold other schemas."""
    members: dict[str, Any] = {}
    for key in ("$defs", "properties"):
        if key in schema:
            if not isinstance(schema[key], dict):
                raise _NotExpressibleError
            members[key] = {name: _reduce(member) for name, member in schema[key].items()}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            members["anyOf"] = [_reduce(choice) for choice in schema[key]]
    if "items" in schema:
        members["items"] = _reduce(schema["items"])
    return members


def _check_object(schema: dict[str, Any]) -> None:
    # Providers refuse objects with arbitrary properties.
    if not schema.get("properties") or schema.get("additionalProperties") not in (None, False):
        raise _NotExpressibleError
    if any(name not in schema["properties"] for name in schema.get("required", ())):
        raise _NotExpressibleError
