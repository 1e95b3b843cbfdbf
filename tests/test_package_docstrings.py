"""The docstring of a package is the map of it: it names each module, and nothing that does not exist."""

import ast
import importlib
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(path.parent for path in (ROOT / "agent").rglob("__init__.py"))

ONE_MODULE_FOR_EACH = {
    "agent.cli.commands",
    "agent.server.examples",
    "agent.server.routes",
    "agent.server.schemas",
    "agent.steps.kinds",
    "agent.store.schema.migrations.versions",
}
"""Packages whose modules are named after what they are for; the docstring must say so in these words."""

_REFERENCE = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_DOTTED = re.compile(r"agent(\.\w+)+")


def name_of(package: Path) -> str:
    """Return the import name of a package."""
    return ".".join(package.relative_to(ROOT).parts)


def docstring_of(package: Path) -> str:
    """Return the docstring of a package."""
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def modules_of(package: Path) -> set[str]:
    """Return the names of a package's modules and subpackages."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def named_in(docstring: str) -> set[str]:
    """Return the names in code marks, and those that begin a line of an indented list."""
    marked = {name for text in _REFERENCE.findall(docstring) for name in re.findall(r"\w+", text)}
    return marked | set(re.findall(r"^ {4}(\w+)\b", docstring, re.MULTILINE))


@cache
def names_in_code() -> frozenset[str]:
    """Return every identifier of the code, every word of its strings, and every name of a file."""
    names: set[str] = set()
    for path in (ROOT / "agent").rglob("*.py"):
        names.add(path.stem)
        names.update(path.parent.parts)
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        for token in tokens:
            if token.type == tokenize.NAME:
                names.add(token.string)
            elif token.type == tokenize.STRING and '"""' not in token.string:
                names.update(re.findall(r"\w+", token.string))
    return frozenset(names)


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_a_package_names_each_of_its_modules(package: Path) -> None:
    """A reader finds from the docstring alone which module to open."""
    docstring = docstring_of(package)
    if name_of(package) in ONE_MODULE_FOR_EACH:
        assert "one module for each" in docstring
    else:
        assert modules_of(package) - named_in(docstring) == set()


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_what_a_package_names_exists(package: Path) -> None:
    """A name in code marks occurs in the code; a dotted one below `agent` can be imported."""
    unknown = []
    for text in _REFERENCE.findall(docstring_of(package)):
        if _DOTTED.fullmatch(text):
            if not _exists(text):
                unknown.append(text)
        elif all(_NAME.fullmatch(part) for part in text.split(".")):
            unknown += [part for part in text.split(".") if part not in names_in_code()]
    assert unknown == []


def _exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return True
    return False
