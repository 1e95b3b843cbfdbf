"""The cost of checking a value against a JSON Schema, computed before the check.

The validator cannot be interrupted, so its work is bounded beforehand. A small schema can need very
much work: definitions that refer to each other twice double it with each level, and a recursive schema
does so with each level of the value.
"""

import sys
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.workflows.patterns import pattern_weight

MAX_OPERATIONS: Final = 5_000_000
"""One operation is the check of one value against one subschema: 20 to 50 ns."""
MAX_EXPANDED: Final = 50_000
"""Subschemas of a schema that is not recursive, with every $ref expanded."""
MAX_PAIRS: Final = 100_000
"""Pairs of a value and a subschema that are counted one by one: 2 to 4 µs each."""
_CHARS_PER_OPERATION: Final = 2

_IN_PLACE: Final = ("not", "if", "then", "else")
_CHOICES: Final = ("anyOf", "oneOf")
_LISTS: Final = ("allOf", *_CHOICES)
_OF_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_OF_ITEMS: Final = ("items", "contains", "unevaluatedItems")
_REFERENCES: Final = ("$ref", "$dynamicRef")
_COSTLY_WORDS: Final = frozenset({"enum", "pattern", "patternProperties", "uniqueItems"})

Schema = dict[str, Any]


class TooCostlyError(ValueError):
    """Checking a value takes more operations than are allowed."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a value."""

    values: int
    characters: int


@dataclass(frozen=True, slots=True)
class Cost:
    """The operations that checking one value takes."""

    operations: int
    largest_choice: int
    """Operations of the costliest `anyOf` or `oneOf`: its error lists the errors of all its branches."""


def size_of(value: Any) -> Size:
    """Count the values in a value, and the characters of its texts and keys."""
    values = characters = 0
    pending = [value]
    while pending:
        member = pending.pop()
        values += 1
        if isinstance(member, str):
            characters += len(member)
        elif isinstance(member, dict):
            characters += sum(map(len, member))
            pending.extend(member.values())
        elif isinstance(member, list):
            pending.extend(member)
    return Size(values, characters)


class SchemaCost:
    """The references of one schema, and the cost of its parts."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._targets: dict[int, list[Schema]] = {}
        """The targets of a schema's references, by the identity of the schema."""
        self._weights: dict[str, int] = {}
        self._leaves: dict[int, bool] = {}
        self._find_targets()
        self.expanded, self.weight = self._expanded(schema, {}, set())
        self.has_choices = any(
            word in part for part, _ in _with_resources(schema) for word in _CHOICES
        )

    @property
    def is_recursive(self) -> bool:
        """Whether the schema contains itself, so that the cost depends on the value."""
        return self.expanded >= sys.maxsize

    def bound(self, size: Size) -> int:
        """Return the highest cost of checking a value of this size."""
        return self.expanded * size.values + self.weight * size.characters // _CHARS_PER_OPERATION

    def count(self, value: Any, limit: int = MAX_OPERATIONS, max_pairs: int = MAX_PAIRS) -> Cost:
        """Return the cost of checking a value; raise `TooCostlyError` beyond the limits."""
        done: dict[tuple[int, int], int] = {}
        first = _CountedCheck(self._schema, value, self)
        stack, under_way, largest = [first], {first.key}, 0
        while stack:
            frame = stack[-1]
            child = next(frame.children, None)
            if child is None:
                stack.pop()
                under_way.discard(frame.key)
                done[frame.key] = frame.total
                if frame.has_choice:
                    largest = max(largest, frame.total)
                if stack:
                    stack[-1].add(frame.total)
            elif self.is_leaf(child[0]):
                frame.add(_own(*child, self))
            elif (key := (id(child[0]), id(child[1]))) in done:
                frame.add(done[key])
            # A pair that recurs adds nothing: the validator stops there too.
            elif key not in under_way:
                stack.append(_CountedCheck(*child, self))
                under_way.add(key)
            if frame.total > limit or len(done) > max_pairs:
                raise TooCostlyError(f"it takes more than {limit:,} operations")
        return Cost(first.total, largest)

    def has_endless_reference(self) -> bool:
        """Whether a reference leads back to itself without descending into the value."""
        finished: set[int] = set()
        for start, _ in _with_resources(self._schema):
            stack, under_way = [(start, self._in_place(start))], {id(start)}
            while stack:
                schema, rest = stack[-1]
                following = next(rest, None)
                if following is None:
                    stack.pop()
                    under_way.discard(id(schema))
                    finished.add(id(schema))
                elif id(following) in under_way:
                    return True
                elif id(following) not in finished:
                    stack.append((following, self._in_place(following)))
                    under_way.add(id(following))
        return False

    def weigh(self, pattern: Any) -> int:
        """Return the weight of a pattern; other types are refused elsewhere."""
        if not isinstance(pattern, str):
            return 0
        if pattern not in self._weights:
            self._weights[pattern] = pattern_weight(pattern)
        return self._weights[pattern]

    def is_leaf(self, schema: Schema) -> bool:
        """Whether a schema has no subschemas."""
        is_leaf = self._leaves.get(id(schema))
        if is_leaf is None:
            others = (*self._in_place(schema), *_of_parts(schema))
            is_leaf = self._leaves[id(schema)] = not others
        return is_leaf

    def _in_place(self, schema: Schema) -> Iterator[Schema]:
        """Yield the subschemas that are checked against the same value."""
        yield from self._targets.get(id(schema), ())
        for word in _LISTS:
            yield from _listed(schema.get(word))
        for word in _IN_PLACE:
            yield from _one(schema.get(word))
        for word in ("dependentSchemas", "dependencies"):
            yield from _named(schema.get(word))

    def _expanded(
        self, schema: Schema, known: dict[int, tuple[int, int]], under_way: set[int]
    ) -> tuple[int, int]:
        """Return the number of subschemas and the weight of patterns with references expanded."""
        key = id(schema)
        if key in known:
            return known[key]
        if key in under_way or len(under_way) > 300:
            return sys.maxsize, sys.maxsize
        under_way.add(key)
        count = 1 + len(schema["enum"]) if isinstance(schema.get("enum"), list) else 1
        count += schema.get("uniqueItems") is True
        weight = self.weigh(schema.get("pattern"))
        patterns = schema.get("patternProperties")
        weight += sum(map(self.weigh, patterns)) if isinstance(patterns, dict) else 0
        for subschema in (*self._in_place(schema), *_of_parts(schema)):
            more, heavier = self._expanded(subschema, known, under_way)
            count, weight = count + more, weight + heavier
        if any(word in schema for word in ("unevaluatedProperties", "unevaluatedItems")):
            count, weight = 2 * count, 2 * weight
        under_way.discard(key)
        known[key] = min(count, sys.maxsize), min(weight, sys.maxsize)
        return known[key]

    def _find_targets(self) -> None:
        """Find the targets of the references in the schema."""
        anchors: dict[tuple[int, Any], Schema] = {}
        dynamic: dict[Any, list[Schema]] = {}
        referring: list[tuple[Schema, Schema]] = []
        for mapping, resource in _with_resources(self._schema):
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(mapping.get(word), str):
                    anchors.setdefault((id(resource), f"#{mapping[word]}"), mapping)
            if isinstance(mapping.get("$dynamicAnchor"), str):
                dynamic.setdefault(f"#{mapping['$dynamicAnchor']}", []).append(mapping)
            if any(isinstance(mapping.get(word), str) for word in _REFERENCES):
                referring.append((mapping, resource))
        for mapping, resource in referring:
            targets: list[Any] = []
            for word in _REFERENCES:
                if isinstance(reference := mapping.get(word), str):
                    target = find_target(reference, resource)
                    targets.append(anchors.get((id(resource), reference), target))
            # The path decides which of them applies: all are counted.
            targets += dynamic.get(mapping.get("$dynamicRef"), [])
            self._targets[id(mapping)] = [target for target in targets if isinstance(target, dict)]


class _CountedCheck:
    """The check of one value against one subschema, while its operations are counted."""

    __slots__ = ("_factor", "children", "has_choice", "key", "total")

    def __init__(self, schema: Schema, value: Any, cost: SchemaCost) -> None:
        self.key = (id(schema), id(value))
        self.has_choice = any(word in schema for word in _CHOICES)
        # `unevaluated…` evaluates everything else a second time.
        is_twice = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        self._factor = 2 if is_twice else 1
        self.total = self._factor * _own(schema, value, cost)
        self.children = _children(schema, value, cost)

    def add(self, operations: int) -> None:
        self.total += self._factor * operations


def _own(schema: Schema, value: Any, cost: SchemaCost) -> int:
    """Return the cost of a subschema's own keywords, without its subschemas."""
    operations = 1
    choices = schema.get("enum")
    if isinstance(choices, list):
        operations += len(choices)
    if isinstance(value, str) and "pattern" in schema:
        operations += len(value) * cost.weigh(schema["pattern"]) // _CHARS_PER_OPERATION
    elif isinstance(value, dict) and isinstance(schema.get("patternProperties"), dict):
        weight = sum(map(cost.weigh, schema["patternProperties"]))
        operations += sum(map(len, value)) * weight // _CHARS_PER_OPERATION
    elif isinstance(value, list):
        if schema.get("uniqueItems") is True:
            operations += size_of(value).values
        operations += len(value) * sum(1 for _ in _plain_items(schema, cost))
    return operations


def _plain_items(schema: Schema, cost: SchemaCost) -> Iterator[str]:
    """Yield the keywords for items that take one operation each: their items need no counting."""
    for word in _OF_ITEMS:
        items = schema.get(word)
        if isinstance(items, dict) and cost.is_leaf(items) and not items.keys() & _COSTLY_WORDS:
            yield word


def _children(schema: Schema, value: Any, cost: SchemaCost) -> Iterator[tuple[Schema, Any]]:
    """Yield each subschema with each value that it may be checked against."""
    for subschema in cost._in_place(schema):
        yield subschema, value
    if isinstance(value, dict):
        yield from _children_of_members(schema, value)
    elif isinstance(value, list):
        yield from _children_of_items(schema, value, cost)


def _children_of_members(schema: Schema, value: dict[str, Any]) -> Iterator[tuple[Schema, Any]]:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, subschema in properties.items():
            if name in value and isinstance(subschema, dict):
                yield subschema, value[name]
    of_all = [*_named(schema.get("patternProperties"))]
    of_all += [subschema for word in _OF_MEMBERS for subschema in _one(schema.get(word))]
    for subschema in of_all:
        for member in value.values():
            yield subschema, member
    for subschema in _one(schema.get("propertyNames")):
        for name in value:
            yield subschema, name


def _children_of_items(
    schema: Schema, value: list[Any], cost: SchemaCost
) -> Iterator[tuple[Schema, Any]]:
    yield from zip(_listed(schema.get("prefixItems")), value, strict=False)
    plain = set(_plain_items(schema, cost))
    for word in _OF_ITEMS:
        for subschema in _one(schema.get(word)) if word not in plain else ():
            for item in value:
                yield subschema, item


def _of_parts(schema: Schema) -> Iterator[Schema]:
    """Yield the subschemas that are checked against parts of a value."""
    for word in ("properties", "patternProperties"):
        yield from _named(schema.get(word))
    for word in (*_OF_MEMBERS, "propertyNames", *_OF_ITEMS):
        yield from _one(schema.get(word))
    yield from _listed(schema.get("prefixItems"))


def _one(value: Any) -> Iterator[Schema]:
    if isinstance(value, dict):
        yield value


def _listed(value: Any) -> Iterator[Schema]:
    if isinstance(value, list):
        yield from (member for member in value if isinstance(member, dict))


def _named(value: Any) -> Iterator[Schema]:
    if isinstance(value, dict):
        yield from (member for member in value.values() if isinstance(member, dict))


def _with_resources(schema: Schema) -> Iterator[tuple[Schema, Schema]]:
    """Yield every mapping in a schema with the resource that its references are relative to."""
    pending: list[tuple[Any, Schema]] = [(schema, schema)]
    while pending:
        value, resource = pending.pop()
        if isinstance(value, dict):
            resource = value if isinstance(value.get("$id"), str) else resource
            yield value, resource
            pending.extend((inner, resource) for inner in value.values())
        elif isinstance(value, list):
            pending.extend((inner, resource) for inner in value)


def find_target(reference: str, schema: Any) -> Any:
    """Return the target of a pointer such as `#/$defs/line`, or None."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/") if len(reference) > 1 else ():
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict) and key in schema:
            schema = schema[key]
        elif (
            isinstance(schema, list) and key.isascii() and key.isdigit() and int(key) < len(schema)
        ):
            schema = schema[int(key)]
        else:
            return None
    return schema
