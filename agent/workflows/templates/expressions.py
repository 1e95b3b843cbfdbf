"""Templates and expressions, parsed: the names they read, and how to compute them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.workflows.templates import plain_syntax
from agent.workflows.templates.limits import Meter, TemplateError
from agent.workflows.templates.templates import is_template
from agent.workflows.templates.undefined import Path, look_up

Compute = Callable[[Mapping[str, Any], Meter], Any]


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed template or expression, compiled when it is first computed."""

    text: str
    lookups: tuple[Path, ...]
    """Each chain of names that it reads, as in ("steps", "fetch", "output", "link")."""
    dynamic: tuple[str, ...]
    """Names that are read as a whole or by a computed key, as in `steps[inputs.which]`."""
    compute: Compute


@functools.lru_cache(maxsize=8192)
def parse_template(text: str) -> Expression:
    """Parse a text with `{{ }}`; a text that is one expression yields the value itself."""
    stripped = text.strip()
    if stripped.startswith("{{") and stripped.endswith("}}"):
        path = plain_syntax.read_lookup(stripped[2:-2].strip())
        if path is not None:
            return _lookup(text, path)
    lookups = plain_syntax.read_template(text)
    if lookups is not None:
        return _plain(text, lookups, _parse_template)
    return _parse_template(text)


@functools.lru_cache(maxsize=8192)
def parse_expression(text: str) -> Expression:
    """Parse an expression without braces, as in `if: inputs.count > 3`."""
    stripped = text.strip()
    path = plain_syntax.read_lookup(stripped)
    if path is not None:
        return _lookup(text, path)
    if is_template(text):
        raise TemplateError("an expression is written without braces")
    if not stripped:
        raise TemplateError("the expression is empty")
    lookups = plain_syntax.read_expression(stripped)
    if lookups is not None:
        return _plain(text, lookups, _parse_expression)
    return _parse_expression(text)


def _lookup(text: str, path: Path) -> Expression:
    def compute(scope: Mapping[str, Any], meter: Meter) -> Any:
        from agent.workflows.templates.to_json import plain

        return plain(look_up(path, scope), meter)

    return Expression(text, (path,), plain_syntax.names_read_whole((path,)), compute)


def _plain(text: str, lookups: tuple[Path, ...], parse: Callable[[str], Expression]) -> Expression:
    parsed: list[Expression] = []

    def compute(scope: Mapping[str, Any], meter: Meter) -> Any:
        if not parsed:
            parsed.append(parse(text))
        return parsed[0].compute(scope, meter)

    return Expression(text, lookups, plain_syntax.names_read_whole(lookups), compute)


def _parse_template(text: str) -> Expression:
    from agent.workflows.templates import jinja_expressions

    return Expression(text, *jinja_expressions.parse_template(text))


def _parse_expression(text: str) -> Expression:
    from agent.workflows.templates import jinja_expressions

    return Expression(text, *jinja_expressions.parse_expression(text))
