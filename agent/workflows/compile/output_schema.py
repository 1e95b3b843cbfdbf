"""JSON Schemas of outputs, answers and arguments: checked when a workflow is read, applied by the runner.

Nothing is fetched: a `$ref` points into the schema itself. Nothing takes long: patterns run in linear
time, and the work for a schema and a value is bounded before it is done.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from agent.core.ids import canonical_json
from agent.workflows.compile.schema_errors import cut, texts_of
from agent.workflows.diagnostics import did_you_mean, write_key
from agent.workflows.patterns import MAX_WEIGHT
from agent.workflows.schema_cost import (
    MAX_EXPANDED,
    MAX_OPERATIONS,
    SchemaCost,
    Size,
    TooCostlyError,
    find_target,
    size_of,
)

if TYPE_CHECKING:
    from jsonschema_rs import FancyRegexOptions, RegexOptions, Validator

MAX_PROBLEMS: Final = 20
_MAX_REPORTED_OPERATIONS: Final = 2_000
_MAX_REPORTED_PAIRS: Final = 20_000
_MAX_REPORTED_SIZE: Final = 20_000
"""The library makes a message for every error, with the value in it: about 50 µs and its size."""
_MAX_PATTERN_BYTES: Final = 8_000_000
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")

_NAMES_OF_TYPES: Final[dict[type, tuple[str, ...]]] = {
    dict: ("object",),
    list: ("array",),
    str: ("string",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    type(None): ("null",),
}
_BOUNDS: Final = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_OF_NAMES: Final = (
    *("properties", "patternProperties", "$defs", "definitions"),
    *("dependentSchemas", "dependencies"),
)
"""Keywords whose members are schemas by names: a name is no keyword."""
_OF_SCHEMAS: Final = frozenset(
    {
        *(
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "then",
            "else",
            "prefixItems",
            "items",
            "contains",
        ),
        *("additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
    }
)
"""Keywords whose value is a schema, or a list of schemas: that of others is none, whatever it looks like."""

ValuePath = tuple[str | int, ...]


def find_schema_problem(
    schema: dict[str, Any], *, is_foreign: bool = False
) -> tuple[ValuePath, str] | None:
    """Return where and why a JSON Schema cannot be used, or None.

    Parts that no value can meet are a mistake in a schema of one's own; one of another program may have them.
    """
    for path, reference in _references(schema):
        if not isinstance(reference, str) or not reference.startswith("#"):
            return path, "a $ref must point into this schema, as in '#/$defs/line'"
        if reference.startswith("#/") and find_target(reference, schema) is None:
            return path, f"there is no {reference!r} in this schema"
    try:
        _compiled(canonical_json(schema))
    except UnusableSchemaError as error:
        return error.path, str(error)
    return None if is_foreign else next(_contradictions(schema), None)


def _contradictions(schema: dict[str, Any]) -> Iterator[tuple[ValuePath, str]]:
    """Yield the parts that no value can meet: a step would fail after it has run."""
    for path, part in _subschemas(schema, ()):
        listed = part.get("enum", [part["const"]] if "const" in part else None)
        word = "enum" if "enum" in part else "const"
        types = part.get("type", _TYPES)
        types = [types] if isinstance(types, str) else types
        if listed == []:
            yield (*path, word), "no value is one of none: give the values, or leave enum out"
        elif listed is not None and not any(_is_of(value, types) for value in listed):
            yield (*path, word), f"no value of {word} is of type {' or '.join(types)}"
        for least, most in _BOUNDS:
            if least in part and most in part and part[least] > part[most]:
                yield (*path, most), f"no value meets it: {most} is less than {least}"
        if part.get("additionalProperties") is False and not part.get("patternProperties"):
            unknown = [
                name for name in part.get("required", ()) if name not in part.get("properties", {})
            ]
            if unknown and types == ["object"]:
                yield (
                    (*path, "required"),
                    (
                        f"{unknown[0]!r} is required, and additionalProperties: false does not allow it"
                    ),
                )


def _is_of(value: Any, types: Sequence[str]) -> bool:
    if isinstance(value, float) and value.is_integer():
        return "number" in types or "integer" in types
    return any(name in types for name in _NAMES_OF_TYPES[type(value)])


def refuse_unusable(schema: dict[str, Any]) -> None:
    """Raise `ValueError` where a schema cannot be used, with the path in it."""
    problem = find_schema_problem(schema)
    if problem is not None:
        path, message = problem
        raise ValueError(f"{write_key(path)}: {message}" if path else message)


def without_costly_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the patterns that cannot be run in linear time.

    For schemas of other programs: the receiver of a value checks it again.
    """
    if not any(_is_costly(pattern) for _, pattern in _patterns(schema, ())):
        return schema
    cheap: dict[str, Any] = _without_costly(schema)
    return cheap


def _without_costly(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_costly(member) for member in value]
    if not isinstance(value, dict):
        return value
    rest = {key: _without_costly(member) for key, member in value.items()}
    if isinstance(value.get("pattern"), str) and _is_costly(value["pattern"]):
        del rest["pattern"]
    named = value.get("patternProperties")
    if isinstance(named, dict) and any(map(_is_costly, named)):
        rest["patternProperties"] = {
            pattern: subschema
            for pattern, subschema in rest["patternProperties"].items()
            if not _is_costly(pattern)
        }
        # Members that the pattern allowed must not count as additional.
        for word in ("additionalProperties", "unevaluatedProperties"):
            rest.pop(word, None)
    return rest


@lru_cache(maxsize=1024)
def _is_costly(pattern: str) -> bool:
    """Whether only a backtracking engine can run a pattern."""
    from jsonschema_rs import RegexOptions

    options = RegexOptions(size_limit=_MAX_PATTERN_BYTES)
    return not _compiles(pattern, options) and _needs_backtracking(pattern)


class UnusableSchemaError(ValueError):
    """A schema cannot be used, or not with this value; `path` is where in the schema."""

    def __init__(self, message: str, path: ValuePath = ()) -> None:
        super().__init__(message)
        self.path = path


def find_output_problems(
    output: Any, schema: dict[str, Any], characters: int | None = None
) -> list[str]:
    """Return how an output violates its schema, each as `path: reason`; at most twenty.

    `characters` is the length of the output as JSON, where that is known.
    """
    validator, cost = _compiled(canonical_json(schema))
    try:
        size = size_of(output) if characters is None else Size(characters // 2 + 1, characters)
        if cost.bound(size) > MAX_OPERATIONS:
            cost.count(output)
        if validator.is_valid(output):
            return []
        return list(_problem_texts(validator, schema, output, cost, size.values + size.characters))
    except TooCostlyError as error:
        text = f"checking the value against it would take too long: {error}"
        raise UnusableSchemaError(text) from error
    except BaseException as error:
        if not _is_of_library(error):
            raise
        raise UnusableSchemaError(f"{type(error).__name__}: {cut(str(error))}") from error


def _is_of_library(error: BaseException) -> bool:
    """Whether the validator failed: a panic of its own is no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _problem_texts(
    validator: "Validator", schema: dict[str, Any], output: Any, cost: SchemaCost, size: int
) -> Iterator[str]:
    """Yield the violations; of a large value, only as many as can be found quickly."""
    if size <= _MAX_REPORTED_SIZE and _is_cheap(cost, output):
        for number, error in enumerate(validator.iter_errors(output)):
            if number == MAX_PROBLEMS:
                yield "and more"
                return
            yield from islice(texts_of(error, schema), MAX_PROBLEMS)
    elif not cost.has_choices or _are_choices_cheap(cost, output):
        try:
            validator.validate(output)
        except ValueError as error:
            yield from islice(texts_of(error, schema), MAX_PROBLEMS)
            yield "and perhaps more: the value is too large for a full list"
    else:
        yield "output: does not meet the schema; the value is too large to say where"


def _is_cheap(cost: SchemaCost, output: Any) -> bool:
    try:
        cost.count(output, _MAX_REPORTED_OPERATIONS)
    except TooCostlyError:
        return False
    return True


def _are_choices_cheap(cost: SchemaCost, output: Any) -> bool:
    """Whether no `anyOf` has many errors: its one error contains those of all its branches."""
    try:
        return (
            cost.count(output, max_pairs=_MAX_REPORTED_PAIRS).largest_choice
            <= _MAX_REPORTED_OPERATIONS
        )
    except TooCostlyError:
        return False


@lru_cache(maxsize=256)
def _compiled(schema_text: str) -> "tuple[Validator, SchemaCost]":
    """Return the validator of a schema, and its cost."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    schema = json.loads(schema_text)
    cost = SchemaCost(schema)
    _check_patterns(schema, cost)
    try:
        validator = Draft202012Validator(
            schema,
            # Not the default, which backtracks.
            pattern_options=RegexOptions(size_limit=_MAX_PATTERN_BYTES),
            validate_formats=False,
            offline=True,
        )
    except ValidationError as error:
        path = tuple(error.instance_path)
        raise UnusableSchemaError(_reason(error, path), path) from None
    except BaseException as error:
        if not _is_of_library(error):
            raise
        raise UnusableSchemaError(f"not a JSON Schema: {cut(str(error))}") from error
    if cost.has_endless_reference():
        raise UnusableSchemaError("a $ref of this schema leads back to itself, without an end")
    if not cost.is_recursive and cost.expanded > MAX_EXPANDED:
        text = f"its $refs stand for more than {MAX_EXPANDED:,} schemas, counting what they repeat"
        raise UnusableSchemaError(text)
    return validator, cost


def _check_patterns(schema: Any, cost: SchemaCost) -> None:
    """Refuse patterns that are too large, before they are compiled."""
    total = 0
    for path, pattern in _patterns(schema, ()):
        total += cost.weigh(pattern)
        if total > MAX_WEIGHT:
            text = f"the pattern {_shown(pattern)} is too large, with all that it repeats"
            raise UnusableSchemaError(text, path)


def _patterns(value: Any, path: ValuePath) -> Iterator[tuple[ValuePath, str]]:
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield (*path, "pattern"), value["pattern"]
        if isinstance(value.get("patternProperties"), dict):
            for pattern in value["patternProperties"]:
                yield (*path, "patternProperties", pattern), pattern
        for key, member in value.items():
            yield from _patterns(member, (*path, key))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from _patterns(member, (*path, number))


def _reason(error: Any, path: ValuePath) -> str:
    """Return the problem of a schema; the library explains the commonest mistakes badly."""
    value = error.instance
    is_pattern = path[-1:] == ("pattern",) or path[-2:-1] == ("patternProperties",)
    if is_pattern and isinstance(value, str) and 'is not a "regex"' in error.message:
        return _pattern_reason(value)
    is_name = path[-2:-1] and path[-2] in _OF_NAMES
    if path[-1:] != ("type",) or is_name or not isinstance(value, str):
        return f"not a JSON Schema: {cut(error.message)}"
    known = f"not a JSON Schema: {value!r} is not one of {', '.join(_TYPES)}"
    hint = did_you_mean(value, _TYPES)
    return f"{known}; {hint}" if hint else known


def _pattern_reason(pattern: str) -> str:
    if not _needs_backtracking(pattern):
        return f"not a JSON Schema: {_shown(pattern)} is not a regular expression, or is too large"
    return (
        f"the pattern {_shown(pattern)} uses lookaround or a backreference, which takes too long on"
        " some texts; write it without, or check the value in a later step"
    )


def _needs_backtracking(pattern: str) -> bool:
    from jsonschema_rs import FancyRegexOptions

    return _compiles(pattern, FancyRegexOptions())


def _compiles(pattern: str, options: "RegexOptions | FancyRegexOptions") -> bool:
    from jsonschema_rs import Draft202012Validator

    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
    except ValueError:
        return False
    return True


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else pattern[:77] + "...")


def _references(schema: dict[str, Any]) -> Iterator[tuple[ValuePath, Any]]:
    for path, part in _subschemas(schema, ()):
        for word in ("$ref", "$dynamicRef"):
            if word in part:
                yield (*path, word), part[word]


def _subschemas(value: Any, path: ValuePath) -> Iterator[tuple[ValuePath, dict[str, Any]]]:
    """Yield a schema and all schemas in it."""
    if isinstance(value, list):
        for number, member in enumerate(value):
            yield from _subschemas(member, (*path, number))
    if not isinstance(value, dict):
        return
    yield path, value
    for word, member in value.items():
        if word in _OF_NAMES and isinstance(member, dict):
            for name, subschema in member.items():
                yield from _subschemas(subschema, (*path, word, name))
        elif word in _OF_SCHEMAS:
            yield from _subschemas(member, (*path, word))
