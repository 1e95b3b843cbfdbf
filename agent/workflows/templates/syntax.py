"""The accepted part of Jinja: parsed, checked, and prepared for metering.

Only syntax that computes a value from data is accepted: no macros, imports, blocks or recursion. Before
a tree is compiled it is rewritten so that loops, literals, comparisons and `~` are charged.
"""

from collections.abc import Callable
from typing import Final, TypeVar, cast

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from agent.workflows.templates.filters import COMPILERS_OWN
from agent.workflows.templates.limits import MAX_TEMPLATE_CHARS, TemplateError
from agent.workflows.templates.sandbox import Sandbox
from agent.workflows.templates.undefined import Path

ENVIRONMENT: Final = Sandbox()

_MAX_TREE_DEPTH = 80
_ALLOWED: Final = (
    nodes.Expr,
    nodes.Output,
    nodes.For,
    nodes.If,
    nodes.Assign,
    nodes.With,
    nodes.Operand,
    nodes.Pair,
    nodes.Keyword,
    nodes.Template,
)
_REFUSED: Final = (nodes.NSRef,)

_Tree = TypeVar("_Tree", bound=nodes.Node)


def read_template(text: str) -> nodes.Template:
    """Parse and check a text with `{{ }}`."""
    tree = _reading(text, ENVIRONMENT.parse)
    _check(tree)
    return tree


def read_expression(text: str) -> nodes.Template:
    """Parse and check an expression without braces, as a template of that one expression."""
    expression = _reading(text, _parse_alone)
    tree = nodes.Template([nodes.Output([expression], lineno=1)], lineno=1)
    _check(tree)
    return tree


def _parse_alone(text: str) -> nodes.Expr:
    parser = Parser(ENVIRONMENT, text, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        raise TemplateSyntaxError(f"unexpected {parser.stream.current.value!r}", 1)
    expression.set_environment(ENVIRONMENT)
    return expression


def _reading(text: str, parse: Callable[[str], _Tree]) -> _Tree:
    """Parse a text; raise every failure as a `TemplateError`."""
    if len(text) > MAX_TEMPLATE_CHARS:
        raise TemplateError(f"the template is longer than {MAX_TEMPLATE_CHARS:,} characters")
    try:
        return parse(text)
    except TemplateSyntaxError as error:
        reason = str(error.message).rstrip(".")
        place = f" in line {error.lineno} of it" if "\n" in text.strip() else ""
        raise TemplateError(f"the template cannot be read{place}: {reason}") from None
    except (RecursionError, MemoryError):
        raise TemplateError("the template is nested too deeply") from None
    except Exception as error:
        raise TemplateError(f"the template cannot be read: {error}") from None


def _check(tree: nodes.Template) -> None:
    """Refuse syntax that computes no value, and trees too deep to compile."""
    level: list[nodes.Node] = [tree]
    for _ in range(_MAX_TREE_DEPTH):
        if not level:
            return
        for node in level:
            _check_node(node)
        level = [child for node in level for child in node.iter_child_nodes()]
    raise TemplateError("the template is nested too deeply")


def _check_node(node: nodes.Node) -> None:
    if not isinstance(node, _ALLOWED) or isinstance(node, _REFUSED):
        raise TemplateError(f"{type(node).__name__.lower()} cannot be used in a template")
    if isinstance(node, nodes.For) and node.recursive:
        raise TemplateError("a loop in a template cannot be recursive")
    if isinstance(node, nodes.Name) and node.name.startswith("_"):
        raise TemplateError(f"the name {node.name!r} cannot be used in a template")
    if isinstance(node, nodes.Filter) and (
        node.name in COMPILERS_OWN or node.name not in ENVIRONMENT.filters
    ):
        known = ", ".join(sorted(ENVIRONMENT.filters.keys() - COMPILERS_OWN))
        raise TemplateError(f"there is no filter {node.name!r}; there are {known}")
    if isinstance(node, nodes.Test) and node.name not in ENVIRONMENT.tests:
        raise TemplateError(f"there is no test {node.name!r}")


class Charged(NodeTransformer):
    """Puts the charging filters around loops, literals, comparisons and `~`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  the visitor's own naming
        self.generic_visit(node)
        node.iter = _filtered(cast("nodes.Expr", node.iter), "counted")
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "sized")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "sized")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "sized") if node.ctx == "load" else node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filtered(node.expr, "weighed")
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, "weighed")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(list(node.nodes), lineno=node.lineno), "concat")


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def find_lookups(tree: nodes.Template) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Collect the chains of names that a template reads, and the names that it reads whole."""
    own = {n.name for n in tree.find_all(nodes.Name) if n.ctx != "load"} | {"loop", "range"}
    lookups: dict[Path, None] = {}
    dynamic: dict[str, None] = {}
    stack: list[nodes.Node] = [tree]
    while stack:
        node = stack.pop()
        path = _chain(node)
        if path is None:
            stack.extend(reversed(list(node.iter_child_nodes())))
            if isinstance(node, nodes.Getitem | nodes.Getattr):
                inner = _chain(node.node)
                if inner is not None and len(inner) == 1 and inner[0] not in own:
                    dynamic[str(inner[0])] = None
        elif path[0] not in own:
            lookups[path] = None
            if len(path) == 1:
                dynamic[str(path[0])] = None
    return tuple(lookups), tuple(dynamic)


def _chain(node: nodes.Node) -> Path | None:
    parts: list[str | int] = []
    while True:
        if isinstance(node, nodes.Getattr):
            parts.append(node.attr)
            node = node.node
        elif (
            isinstance(node, nodes.Getitem)
            and isinstance(node.arg, nodes.Const)
            and isinstance(node.arg.value, str | int)
        ):
            parts.append(node.arg.value)
            node = node.node
        elif isinstance(node, nodes.Name):
            return (node.name, *reversed(parts))
        else:
            return None
