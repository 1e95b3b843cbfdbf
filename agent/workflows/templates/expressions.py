"""Templates and expressions, parsed: what they refer to, and how to compute them."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from agent.workflows.templates.templates import is_template
from agent.workflows.templates.to_json import plain
from agent.workflows.templates.undefined import Path, explain_missing, look_up

_RESULT: Final = "result"
_MAX_LOOKUP_CHARS: Final = 1_000

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_LOOKUP = re.compile(rf"({_WORD})((?:\.{_WORD}|\[[0-9]{{1,9}}\])*)")
_PART = re.compile(rf"\.({_WORD})|\[([0-9]+)\]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""The address of an object in Python's messages, which differs between attempts."""
_KEYWORDS: Final = frozenset(
    ["and", "else", "if", "in", "is", "not", "or", "true", "false", "none", "True", "False", "None"]
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed template or expression, compiled when it is first computed."""

    text: str
    lookups: tuple[Path, ...]
    """Each chain of names that it reads, as in ("steps", "fetch", "output", "link")."""
    dynamic: tuple[str, ...]
    """Names that are read as a whole or by a computed key, as in `steps[inputs.which]`."""
    compute: Callable[[Mapping[str, Any], Meter], Any]


@functools.lru_cache(maxsize=8192)
def parse_template(text: str) -> Expression:
    """Parse a text with `{{ }}`; a text that is one expression yields the value itself."""
    stripped = text.strip()
    if stripped.startswith("{{") and stripped.endswith("}}"):
        path = _simple_lookup(stripped[2:-2].strip())
        if path is not None:
            return _lookup(text, path)
    tree = read_template(text)
    lone = _lone_expression(read_template(stripped)) if stripped.startswith("{{") else None
    return _expression(text, tree, lone)


@functools.lru_cache(maxsize=8192)
def parse_expression(text: str) -> Expression:
    """Parse an expression without braces, as in `if: inputs.count > 3`."""
    stripped = text.strip()
    path = _simple_lookup(stripped)
    if path is not None:
        return _lookup(text, path)
    if is_template(text):
        raise TemplateError("an expression is written without braces")
    if not stripped:
        raise TemplateError("the expression is empty")
    tree = read_expression(stripped)
    return _expression(text, tree, _lone_expression(tree))


def _simple_lookup(text: str) -> Path | None:
    """Read a plain chain of names without Jinja: most templates are nothing else."""
    match = _LOOKUP.fullmatch(text) if len(text) <= _MAX_LOOKUP_CHARS else None
    if match is None or match[1] in _KEYWORDS:
        return None
    rest = [name or int(index) for name, index in _PART.findall(match[2])]
    return (match[1], *rest)


def _lookup(text: str, path: Path) -> Expression:
    def compute(scope: Mapping[str, Any], meter: Meter) -> Any:
        return plain(look_up(path, scope), meter)

    dynamic = (path[0],) if len(path) == 1 else ()
    return Expression(text, (path,), tuple(map(str, dynamic)), compute)


def _lone_expression(tree: nodes.Template) -> nodes.Expr | None:
    if len(tree.body) == 1 and isinstance(tree.body[0], nodes.Output):
        parts = tree.body[0].nodes
        if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData):
            return parts[0]
    return None


def _expression(text: str, tree: nodes.Template, lone: nodes.Expr | None) -> Expression:
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

    return Expression(text, lookups, dynamic, compute)


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
