"""The functions of `python` steps as their source shows them: nothing is imported or run."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from agent.steps.kinds.module_files import file_of_module
from agent.workflows.diagnostics import did_you_mean

_MAX_BYTES: Final = 1_000_000
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _Names:
    """The names that the top level of a module binds."""

    functions: dict[str, _Function] = field(default_factory=dict)
    others: set[str] = field(default_factory=set)
    """Classes, values and imports: their types are known only when the module runs."""
    is_open: bool = False
    """More names come from `import *`, or from a function `__getattr__`."""


def find_problem(call: str, source_path: str, arguments: frozenset[str] | None) -> str | None:
    """Return why a call will be refused: no such function, or arguments that do not fit.

    `arguments` are the keys under `with`; None where a template makes them. None is returned where the
    source does not tell: a decorated function, an attribute of a class, a module without source.
    """
    module, _, attribute = call.partition(":")
    path = file_of_module(module, source_path)
    if path is None or "." in attribute:
        return None
    try:
        content = path.read_bytes()
        if len(content) > _MAX_BYTES:
            return None
        names = _names_of(ast.parse(content, str(path)))
    except SyntaxError as error:
        return f"{path.name} cannot be loaded: line {error.lineno}: {error.msg}"
    except (OSError, ValueError, RecursionError):
        return None
    function = names.functions.get(attribute)
    if function is None:
        if names.is_open or attribute in names.others:
            return None
        hint = did_you_mean(attribute, names.functions)
        there = f"; {hint}" if hint else ""
        return f"{call}: there is no function {attribute!r} in {path.name}{there}"
    if arguments is None or function.decorator_list:
        return None
    return _argument_problem(call, _signature(function.args), arguments)


def _argument_problem(call: str, signature: inspect.Signature, names: frozenset[str]) -> str | None:
    arguments = dict.fromkeys(sorted(names))
    if "ctx" in signature.parameters:
        arguments["ctx"] = None
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(
            str(parameter) for parameter in signature.parameters.values() if parameter.name != "ctx"
        )
        return f"{call} does not accept the keys under with: {error}; it takes ({takes})"
    return None


def _names_of(tree: ast.Module) -> _Names:
    names = _Names()
    for statement in _statements(tree.body):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.functions[name] = statement
                names.is_open = names.is_open or name == "__getattr__"
            case ast.ClassDef(name=name):
                names.others.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names.is_open = names.is_open or any(alias.name == "*" for alias in imported)
                names.others |= {(alias.asname or alias.name).split(".")[0] for alias in imported}
            case _:
                names.others |= {
                    node.id
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                }
    for name in names.others & names.functions.keys():
        # Bound twice: which one remains is known only when the module runs.
        del names.functions[name]
    return names


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those inside `if`, `try`, `with` and loops among them."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


def _signature(arguments: ast.arguments) -> inspect.Signature:
    kind = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parameters = [
        inspect.Parameter(
            argument.arg,
            kind.POSITIONAL_ONLY
            if number < len(arguments.posonlyargs)
            else kind.POSITIONAL_OR_KEYWORD,
            default=kind.empty if number < required else _Default(),
        )
        for number, argument in enumerate(positional)
    ]
    if arguments.vararg is not None:
        parameters.append(inspect.Parameter(arguments.vararg.arg, kind.VAR_POSITIONAL))
    parameters += [
        inspect.Parameter(
            keyword.arg, kind.KEYWORD_ONLY, default=kind.empty if default is None else _Default()
        )
        for keyword, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        parameters.append(inspect.Parameter(arguments.kwarg.arg, kind.VAR_KEYWORD))
    return inspect.Signature(parameters)


class _Default:
    """Some default value."""

    def __repr__(self) -> str:
        return "…"
