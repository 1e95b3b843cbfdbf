"""The JSON Schema of workflow files, for editors, made from the models that check them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agent.workflows.compile.input_keys import SYNONYMS
from agent.workflows.compile.kind_choice import GATE
from agent.workflows.compile.models import StepKeys, WorkflowKeys
from agent.workflows.graph import NAME_PATTERN
from agent.workflows.kind_registry import KindSpec, registered

if TYPE_CHECKING:
    from agent.workflows.kind_registry import AnyModel

_TEMPLATE = {"type": "string", "pattern": r"\{[{%]", "description": "a template"}


def workflow_schema(kinds: Mapping[str, KindSpec] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a workflow file with the kinds of steps that are known."""
    known = registered() if kinds is None else kinds
    definitions: dict[str, Any] = {}
    schema = _schema_of(WorkflowKeys, "", definitions)
    step = _schema_of(StepKeys, "", definitions)
    for name, spec in known.items():
        step["properties"][name] = _kind(spec, definitions)
    step["oneOf"] = _one_kind(list(known))
    definitions["Step"] = step
    definitions["InputKeys"] = _input(definitions["InputKeys"])
    schema["properties"]["steps"] |= {
        "additionalProperties": False,
        "patternProperties": {NAME_PATTERN: {"$ref": "#/$defs/Step"}},
    }
    schema["properties"]["steps"].pop("propertyNames", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Workflow",
        **schema,
        "patternProperties": {"^x-": True},
        "$defs": definitions,
    }


def _one_kind(names: list[str]) -> list[dict[str, Any]]:
    """Require exactly one kind; `approval` counts only where it is the only one."""
    acting: list[dict[str, Any]] = [{"required": [name]} for name in names if name != GATE]
    if GATE not in names:
        return acting or [{}]
    return [*acting, {"required": [GATE], "not": {"anyOf": acting or [{"not": {}}]}}]


def _schema_of(model: "type[AnyModel]", prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a model's schema; its definitions are moved into the common ones."""
    schema = model.model_json_schema(
        by_alias=True, mode="validation", ref_template=f"#/$defs/{prefix}{{model}}"
    )
    for name, definition in schema.pop("$defs", {}).items():
        definitions[f"{prefix}{name}"] = _in_standard_words(definition)
    standard: dict[str, Any] = _in_standard_words(schema)
    return standard


_STANDARD_WORDS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


def _in_standard_words(schema: Any) -> Any:
    """Write bounds as JSON Schema has them: beside a custom type pydantic leaves its own keywords."""
    if not isinstance(schema, dict):
        return schema
    changed: dict[str, Any] = {}
    for word, value in schema.items():
        if word in ("properties", "patternProperties"):
            value = {name: _in_standard_words(member) for name, member in value.items()}
        elif word in ("anyOf", "oneOf", "allOf", "prefixItems"):
            value = [_in_standard_words(member) for member in value]
        elif word in ("items", "additionalProperties", "propertyNames", "not"):
            value = _in_standard_words(value)
        changed[_STANDARD_WORDS.get(word) or word] = value
    return changed


def _kind(spec: KindSpec, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema under a kind's name: its keys, each also as a template."""
    own: dict[str, Any] = {}
    schema = _or_templates(_schema_of(spec.model, f"{spec.name}_", own))
    definitions |= {name: _or_templates(definition) for name, definition in own.items()}
    if spec.short_key is None:
        return {**schema, "description": spec.description or schema.get("description", "")}
    short = schema["properties"].get(spec.short_key, {})
    return {"description": spec.description, "anyOf": [schema, short]}


def _or_templates(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow a template wherever the schema of an object has a value."""
    changed = dict(schema)
    for word in ("properties", "patternProperties"):
        if word in changed:
            changed[word] = {key: _or_template(inner) for key, inner in changed[word].items()}
    for word in ("additionalProperties", "items"):
        if isinstance(changed.get(word), dict):
            changed[word] = _or_template(changed[word])
    for word in ("anyOf", "oneOf", "allOf"):
        if word in changed:
            changed[word] = [_or_templates(inner) for inner in changed[word]]
    return changed


def _or_template(schema: dict[str, Any]) -> dict[str, Any]:
    words = ("description", "default")
    about: dict[str, Any] = {key: schema[key] for key in words if key in schema}
    return {**about, "anyOf": [_or_templates(schema), _TEMPLATE]}


def _input(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the forms that are accepted besides the model: a bare type, its synonyms, and `enum`."""
    types = [*_types(schema["properties"]["type"]), *SYNONYMS]
    properties = {
        **schema["properties"],
        "type": {"enum": types},
        "enum": schema["properties"]["choices"],
    }
    return {"anyOf": [{"enum": types}, {**schema, "properties": properties}]}


def _types(schema: dict[str, Any]) -> list[str]:
    types: list[str] = schema.get("enum", [])
    for branch in schema.get("anyOf", []):
        types = types or _types(branch)
    return types
