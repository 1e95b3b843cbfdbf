"""`foreach`, `parallel` and `concurrency`: from the keys of a step to a `Fanout`."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from agent.workflows.compile.models import StepKeys
from agent.workflows.compile.references import ROOTS
from agent.workflows.diagnostics import did_you_mean
from agent.workflows.graph import MAX_ITEMS, Fanout
from agent.workflows.templates.templates import is_template
from agent.workflows.validation_messages import shown

Refuse = Callable[[str, str, str | None], None]
"""Takes a key of the step, its problem, and a hint."""
Near = Callable[[str], str | None]
"""Takes what is no step's name, and returns the nearest one as a hint."""

_SHORTHAND = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)((?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*)")


def without_braces(text: str) -> str | None:
    """Return the expression in a text that is one; None when a template holds more than one."""
    if not is_template(text):
        return text.strip()
    whole = text.strip()
    if len(whole) < 4 or not (whole.startswith("{{") and whole.endswith("}}")):
        return None
    # A sign inside the braces trims the text around them; here there is none.
    inner = whole[2:-2]
    inner = inner[1:] if inner[:1] in ("-", "+") else inner
    inner = inner[:-1] if inner[-1:] in ("-", "+") else inner
    return None if is_template(inner) else inner.strip()


def read_fanout(
    written: Mapping[str, Any],
    keys: StepKeys,
    steps: Mapping[str, Any],
    inputs: Mapping[str, Any],
    near: Near,
    refuse: Refuse,
) -> Fanout | None:
    """Return the fanout of a step, or None; `refuse` receives its problems."""
    if "foreach" in written and "parallel" in written:
        refuse("parallel", "a step has foreach or parallel, not both", None)
    elif "foreach" in written:
        return _foreach(keys, steps, inputs, near, refuse)
    elif "parallel" in written:
        return _parallel(keys, steps, inputs, near, refuse)
    elif keys.concurrency is not None:
        refuse("concurrency", "concurrency needs foreach or parallel", None)
    return None


def _foreach(
    keys: StepKeys,
    steps: Mapping[str, Any],
    inputs: Mapping[str, Any],
    near: Near,
    refuse: Refuse,
) -> Fanout | None:
    value = keys.foreach
    if isinstance(value, list):
        if len(value) > MAX_ITEMS:
            refuse("foreach", f"{len(value):,} items, and {MAX_ITEMS:,} are allowed", None)
            return None
        return Fanout(items=value, concurrency=keys.concurrency)
    if not isinstance(value, str) or not value.strip():
        message = f"foreach takes a list, or what gives one, and not {shown(value)}"
        refuse("foreach", message, "as in discover.files or [a, b]")
        return None
    expression = _expression("foreach", value, steps, near, refuse)
    if expression is None or not _is_input_of(expression, inputs, {"list"}, "foreach", refuse):
        return None
    if not _is_list(expression, steps):
        refuse("foreach", f"{expression} is not a list by that step's own output schema", None)
        return None
    return Fanout(items_of=expression, concurrency=keys.concurrency)


def _parallel(
    keys: StepKeys,
    steps: Mapping[str, Any],
    inputs: Mapping[str, Any],
    near: Near,
    refuse: Refuse,
) -> Fanout | None:
    value = keys.parallel
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MAX_ITEMS:
            refuse("parallel", f"must be from 1 to {MAX_ITEMS:,}, and is {shown(value)}", None)
            return None
        return Fanout(count=value, concurrency=keys.concurrency)
    if not isinstance(value, str) or not value.strip():
        message = f"parallel takes a count, or what gives one, and not {shown(value)}"
        refuse("parallel", message, "as in 4 or discover.count")
        return None
    expression = _expression("parallel", value, steps, near, refuse)
    kinds = {"integer", "number"}
    if expression is None or not _is_input_of(expression, inputs, kinds, "parallel", refuse):
        return None
    return Fanout(count_of=expression, concurrency=keys.concurrency)


def _expression(
    key: str, text: str, steps: Mapping[str, Any], near: Near, refuse: Refuse
) -> str | None:
    """Read `discover.files` as that step's output, and anything else as an expression."""
    expression = without_braces(text)
    if expression is None:
        refuse(key, "must be one expression, not text with templates in it", None)
        return None
    match = _SHORTHAND.fullmatch(expression)
    if match is None or match[1] in ROOTS or is_template(text):
        return expression
    if match[1] not in steps:
        hint = did_you_mean(match[1], ROOTS) or near(match[1])
        refuse(key, f"there is no step {match[1]!r}", hint)
        return None
    return f"steps.{match[1]}.output{match[2]}"


def _is_input_of(
    expression: str, inputs: Mapping[str, Any], kinds: set[str], key: str, refuse: Refuse
) -> bool:
    name = expression.removeprefix("inputs.")
    declared = inputs.get(name) if name != expression else None
    kind = declared.get("type") if isinstance(declared, dict) else None
    if kind is None or kind in kinds:
        return True
    refuse(key, f"the input {name!r} is of type {kind}, not {' or '.join(sorted(kinds))}", None)
    return False


def _is_list(expression: str, steps: Mapping[str, Any]) -> bool:
    """Whether an output can be a list, as far as its step's own schema tells."""
    match = re.fullmatch(r"steps\.(\w+)\.output(?:\.(\w+))?", expression)
    if match is None:
        return True
    step = steps.get(match[1])
    schema = step.get("output") if isinstance(step, dict) else None
    if match[2] is not None and isinstance(schema, dict):
        properties = schema.get("properties")
        schema = properties.get(match[2]) if isinstance(properties, dict) else None
    kind = schema.get("type") if isinstance(schema, dict) else None
    return not isinstance(kind, str) or kind == "array"
