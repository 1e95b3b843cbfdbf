"""Values that people type into forms: JSON, numbers, and inputs with declared types."""

import json
import re
from typing import Any, Final

from agent.core.escape import harmless_json
from agent.server.pages.forms import schema_form
from agent.server.pages.framework.page_request import Form
from agent.server.problems import Problem
from agent.workflows.compile.inputs import inputs_schema
from agent.workflows.graph import Graph

Json = Any

_INPUTS: Final = re.compile(r"^inputs:.*(?:\n(?:[ \t#].*)?)*", re.MULTILINE)
"""The block of inputs in a source: up to the next line that begins at the left."""


def json_field(form: Form, name: str, what: str) -> Json:
    """Return the JSON that was typed into a field; None where it was left empty."""
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        hint = '; write a text in quotes, as in "yes"' if text[0] not in '{["' else ""
        raise Problem(422, "invalid", f"{what} is not JSON: {error}{hint}") from None


def input_members(graph: Graph, source: str | None = None) -> list[schema_form.Member]:
    """Return the fields of a workflow's inputs, in the order of its source; none if they must be typed as JSON."""
    members = schema_form.members_of(plain_schema(graph), is_input=True)
    # A recorded graph has its keys in the order of the alphabet; only the source has the author's.
    section = _INPUTS.search(source or "")
    text = section[0] if section is not None else ""
    return sorted(members, key=lambda member: _place(text, member.name))


def _place(text: str, name: str) -> int:
    found = re.search(rf"(?<![\w-]){re.escape(name)}[\"']?\s*:", text)
    return len(text) if found is None else found.start()


def plain_schema(graph: Graph) -> dict[str, Json]:
    """Return the schema of a workflow's inputs for a form: an optional input may be left empty."""
    schema = inputs_schema(graph)
    for keys in schema["properties"].values():
        if isinstance(keys.get("type"), list):
            keys["type"] = keys["type"][0]
    return schema


def read_inputs(graph: Graph, form: Form) -> dict[str, Json]:
    """Return the inputs in a form: its fields, or the JSON of them all."""
    members = input_members(graph)
    if members:
        return schema_form.read(members, form)
    value = json_field(form, "inputs", "the input")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Problem(422, "invalid", 'the input must be an object, as in {"name": "value"}')
    return value


def defaults(graph: Graph) -> dict[str, Json]:
    """Return what each input of a workflow is where nothing is given."""
    return {name: keys.get("default") for name, keys in graph.inputs.items()}


def edited_inputs(graph: Graph, form: Form, before: dict[str, Json]) -> dict[str, Json]:
    """Return the inputs that a form changes; one that it leaves out is then as in a new task."""
    typed = read_inputs(graph, form)
    names = {member.name for member in input_members(graph) if member.field in form}
    left_out = {
        name: value
        for name, value in defaults(graph).items()
        if name in names or form.get("inputs", "").strip()
    }
    return {
        name: value
        for name, value in (left_out | typed).items()
        if name not in before or value != before[name]
    }


def shown_inputs(graph: Graph, values: dict[str, Json]) -> Form:
    """Return values as the texts of a form's fields."""
    members = input_members(graph)
    if not members:
        return {"inputs": harmless_json(values, indent=2)}
    shown = {member.field: member.text_of(values.get(member.name)) for member in members}
    return shown | {
        member.choice: "1"
        for member in members
        if member.without == schema_form.LEAVE_OUT and values.get(member.name) is None
    }


def _refuse(word: str) -> Json:
    raise ValueError(f"{word} is not a JSON value")
