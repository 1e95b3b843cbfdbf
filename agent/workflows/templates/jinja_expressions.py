"""Templates and expressions that Jinja parses and computes."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2 import nodes
from jinja2.environment import Template
from jinja2.exceptions import SecurityError, UndefinedError

from agent.workflows.templates.filters import metered
from agent.workflows.templates.limits import Meter, TemplateError
from agent.workflows.templates.syntax import (
    ENVIRONMENT,
    Charged,
    find_lookups,
    read_expression,
    read_template,
)
from agent.workflows.templates.to_json import plain
from agent.workflows.templates.undefined import Path, explain_missing

_RESULT: Final = "result"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The address of an object in Python's messages, which differs between attempts."""

Parsed = tuple[tuple[Path, ...], tuple[str, ...], Callable[[Mapping[str, Any], Meter], Any]]
"""The chains of names that are read, the names that are read whole, and how to compute the value."""


def parse_template(text: str) -> Parsed:
    """Parse a text with `{{ }}`; a text that is one expression yields the value itself."""
    stripped = text.strip()
    tree = read_template(text)
    lone = _lone_expression(read_template(stripped)) if stripped.startswith("{{") else None
    return _parsed(tree, lone)


def parse_expression(text: str) -> Parsed:
    """Parse an expression without braces."""
    tree = read_expression(text.strip())
    return _parsed(tree, _lone_expression(tree))


def _lone_expression(tree: nodes.Template) -> nodes.Expr | None:
    if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output):
        parts = tree.body[0].nodes
        if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData):
            return parts[0]
    return None


def _parsed(tree: nodes.Template, lone: nodes.Expr | None) -> Parsed:
    lookups, dynamic = find_lookups(tree)
    compiled: list[Template] = []

    def compute(scope: Mapping[str, Any], meter: Meter) -> Any:
        with metered(meter):
            try:
                if not compiled:
                    compiled.append(_compiled(tree, lone))
                return _run(compiled[0], scope, meter, lone is not None)
            except TemplateError:
                raise
            except UndefinedError as error:
                raise TemplateError(explain_missing(error, lookups, scope)) from None
            except SecurityError as error:
                raise TemplateError(str(error)) from None
            except (RecursionError, MemoryError):
                raise TemplateError("the template needs too much memory") from None
            except Exception as error:
                reason = _ADDRESS.sub("", str(error))
                raise TemplateError(f"the template cannot be computed: {reason}") from None

    return lookups, dynamic, compute


def _compiled(tree: nodes.Template, lone: nodes.Expr | None) -> Template:
    body: list[nodes.Node] = list(tree.body)
    if lone is not None:
        body = [nodes.Assign(nodes.Name(_RESULT, "store"), lone, lineno=1)]
    program = nodes.Template(body, lineno=1)
    program = Charged().visit(program)
    program.set_environment(ENVIRONMENT)
    code = ENVIRONMENT.compile(program)
    return Template.from_code(ENVIRONMENT, code, ENVIRONMENT.globals, None)


def _run(template: Template, scope: Mapping[str, Any], meter: Meter, is_lone: bool) -> Any:
    context = template.new_context(dict(scope))
    parts = []
    chars = 0
    for part in template.root_render_func(context):
        chars += len(part)
        meter.charge_text(len(part))
        parts.append(part)
    if is_lone:
        return plain(context.vars[_RESULT], meter)
    meter.charge_text(chars)
    return "".join(parts)
