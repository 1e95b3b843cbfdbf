"""A route of the HTTP API as a tool: its schemas from the route's description, its calls as requests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from agent.mcp.api_calls import ApiRequest, NeededScope
from agent.workflows.compile.output_schema import find_output_problems

JsonSchema = dict[str, Any]

_COMPONENTS: Final = "#/components/schemas/"
_DROPPED: Final = ("title", "examples", "example")
"""Keys of schemas that tell a client nothing: every tool has its schema in every list."""
_KEY_HEADER: Final = "Idempotency-Key"
_VISIBLE: Final = "".join(map(chr, range(0x21, 0x7F)))
"""Characters that a header may hold unescaped."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Properties of a tool for the client, before it asks its user."""

    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False


class ArgumentError(ValueError):
    """The arguments of a call do not fit the tool's schema."""


@dataclass(frozen=True, slots=True)
class RouteTool:
    """A tool that is a route."""

    name: str
    title: str
    description: str
    scope: NeededScope
    hints: Hints
    method: str
    path: str
    input_schema: JsonSchema
    output_schema: JsonSchema
    places: Mapping[str, str] = field(default_factory=dict)
    """Where each argument goes: `path`, `query`, `header`, `body` (a member of it) or `whole body`."""
    needs_body: bool = False

    def request(self, arguments: Mapping[str, Any]) -> ApiRequest:
        """Return the request that a call of the tool is; raise `ArgumentError`."""
        check_arguments(arguments, self.input_schema)
        path, query, members = self.path, {}, {}
        headers: dict[str, str] = {}
        body, has_body = None, self.needs_body
        for name, value in arguments.items():
            match self.places[name]:
                case "path":
                    path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
                case "query":
                    query[name] = value
                case "header" if value is not None:
                    headers[_KEY_HEADER] = quote(value, safe=_VISIBLE)
                case "header":
                    continue
                case "body":
                    members[name] = value
                case _:
                    body, has_body = value, True
        if members or (has_body and body is None):
            body, has_body = members, True
        return ApiRequest(self.method, path, query, body, has_body, headers)


def check_arguments(arguments: Mapping[str, Any], schema: JsonSchema) -> None:
    """Raise `ArgumentError` unless arguments fit a schema; the message lists every problem."""
    try:
        characters = len(json.dumps(arguments))
    except (TypeError, ValueError, RecursionError):
        raise ArgumentError("the arguments are not plain JSON") from None
    problems = find_output_problems(dict(arguments), schema, characters)
    if problems:
        text = "; ".join(problem.replace("output", "arguments", 1) for problem in problems)
        raise ArgumentError(f"the arguments do not fit the tool: {text}")


def route_tool(
    name: str, operation_id: str, hints: Hints, description: str, api: Mapping[str, Any]
) -> RouteTool:
    """Return the tool of an operation of the OpenAPI description."""
    method, path, operation = _operation(api, operation_id)
    components = api["components"]["schemas"]
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    places: dict[str, str] = {}
    for parameter in operation.get("parameters", ()):
        argument, place = parameter["name"], parameter["in"]
        if place == "header":
            argument = "idempotency_key"
        schema = dict(parameter["schema"])
        if place == "path":
            schema.setdefault("minLength", 1)
        if parameter.get("description"):
            schema["description"] = parameter["description"]
        properties[argument] = schema
        places[argument] = place
        if parameter.get("required"):
            required.append(argument)
    _add_body(operation, components, properties, required, places)
    security = operation["security"]
    return RouteTool(
        name=name,
        title=operation["summary"],
        description=description or operation["description"],
        scope=security[0]["token"][0],
        hints=hints,
        method=method.upper(),
        path=path,
        input_schema=standalone(
            {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            },
            components,
        ),
        output_schema=standalone(_response_schema(operation), components),
        places=places,
        needs_body="body" in places.values() and operation["requestBody"].get("required", False),
    )


def _operation(api: Mapping[str, Any], operation_id: str) -> tuple[str, str, Mapping[str, Any]]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] == operation_id:
                return method, path, operation
    raise LookupError(f"the API has no operation {operation_id}")


def _add_body(
    operation: Mapping[str, Any],
    components: Mapping[str, Any],
    properties: dict[str, JsonSchema],
    required: list[str],
    places: dict[str, str],
) -> None:
    """Add the members of a body that is an object; a body of any kind is one argument."""
    body = operation.get("requestBody")
    if body is None:
        return
    schema = _resolved(body["content"]["application/json"]["schema"], components)
    if "properties" not in schema:
        properties["value"] = schema
        places["value"] = "whole body"
        return
    for name, member in schema["properties"].items():
        assert name not in properties, f"{name} is in the path and in the body"
        properties[name] = member
        places[name] = "body"
    required += schema.get("required", [])


def _resolved(schema: Mapping[str, Any], components: Mapping[str, Any]) -> JsonSchema:
    """Return the schema behind a reference, or behind one that may also be null."""
    for choice in schema.get("anyOf", ()):
        if "$ref" in choice:
            return _resolved(choice, components)
    if "$ref" in schema:
        return dict(components[schema["$ref"].removeprefix(_COMPONENTS)])
    return dict(schema)


def _response_schema(operation: Mapping[str, Any]) -> JsonSchema:
    statuses = (status for status in operation["responses"] if status.startswith("2"))
    content = operation["responses"][next(statuses)]["content"]
    return dict(content["application/json"]["schema"])


def standalone(schema: JsonSchema, components: Mapping[str, Any]) -> JsonSchema:
    """Return a schema with its references included, as an object at its root and without examples."""
    if "$ref" in schema:
        schema = components[schema["$ref"].removeprefix(_COMPONENTS)]
    needed: dict[str, JsonSchema] = {}
    root: JsonSchema = _rewritten(schema, components, needed)
    if needed:
        root["$defs"] = dict(sorted(needed.items()))
    root.setdefault("type", "object")
    return root


def _rewritten(value: Any, components: Mapping[str, Any], needed: dict[str, JsonSchema]) -> Any:
    if isinstance(value, list):
        return [_rewritten(item, components, needed) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_COMPONENTS)
        if name not in needed:
            needed[name] = {}
            needed[name] = _rewritten(components[name], components, needed)
        return {"$ref": f"#/$defs/{name}"}
    # The members of an object may be called like a key of schemas.
    return {
        key: {name: _rewritten(schema, components, needed) for name, schema in part.items()}
        if key == "properties"
        else _rewritten(part, components, needed)
        for key, part in value.items()
        if key not in _DROPPED
    }
