"""Rendering: texts with `{{ }}` become values, everything else stays as it is.

A text that is one expression yields the value itself, with its type. A result is never rendered again,
so data cannot become a template. Jinja is imported at the first template. One meter bounds everything
that one call renders.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent.workflows.templates.limits import MAX_DEPTH, Meter, TemplateError

if TYPE_CHECKING:
    from agent.workflows.templates.expressions import Expression

__all__ = ["TemplateError", "evaluate", "has_templates", "is_template", "render"]

Json = Any


def is_template(text: str) -> bool:
    """Whether a text has anything for Jinja to do."""
    return "{" in text and ("{{" in text or "{%" in text or "{#" in text)


def has_templates(value: Json) -> bool:
    """Whether a text anywhere in a value is a template; keys never are."""
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, Mapping):
        return any(map(has_templates, value.values()))
    if isinstance(value, list):
        return any(map(has_templates, value))
    return False


def render(value: Json, scope: Mapping[str, Any], *, is_strict: bool = False) -> Json:
    """Render every template in a value; raise `TemplateError` naming the key at fault."""
    return _rendered(value, scope, Meter(is_strict=is_strict), ())


def evaluate(expression: str, scope: Mapping[str, Any], *, is_strict: bool = False) -> Json:
    """Compute an expression without braces, as in `if:`; raise `TemplateError`."""
    return _parse_expression(expression).compute(scope, Meter(is_strict=is_strict))


def _rendered(value: Json, scope: Mapping[str, Any], meter: Meter, path: tuple[Any, ...]) -> Json:
    if isinstance(value, str):
        if not is_template(value):
            return value
        try:
            return _parse_template(value).compute(scope, meter)
        except TemplateError as error:
            raise TemplateError(f"{_where(path)}{error}") from None
    if len(path) > MAX_DEPTH:
        raise TemplateError(f"the value is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {key: _rendered(member, scope, meter, (*path, key)) for key, member in value.items()}
    if isinstance(value, list):
        return [_rendered(member, scope, meter, (*path, n)) for n, member in enumerate(value)]
    return value


def _where(path: tuple[Any, ...]) -> str:
    if not path:
        return ""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return f"in {text.lstrip('.')}: "


def _parse_template(text: str) -> "Expression":
    from agent.workflows.templates.expressions import parse_template

    return parse_template(text)


def _parse_expression(text: str) -> "Expression":
    from agent.workflows.templates.expressions import parse_expression

    return parse_expression(text)
