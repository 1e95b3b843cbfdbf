"""Paths and dotted names in code marks lead to what exists: in docstrings, and in the docs about the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from sqlmodel import SQLModel

import agent.store.schema.tables  # noqa: F401  (declares the tables)
from agent.config.settings import Settings

ROOT: Final = Path(__file__).parent.parent.parent
MODULES: Final = sorted((ROOT / "agent").rglob("*.py"))
PAGES: Final = sorted(page for page in ROOT.glob("docs/**/*.md"))
ABOUT_CODE: Final = [
    ROOT / "CONTRIBUTING.md",
    *(page for page in PAGES if page.name == "architecture.md" or "decisions" in page.parts),
]
_TOP: Final = ("agent", "tests", "docs", "examples", "bench", "man")
_MARK: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(r"[a-z_][\w.*-]*(?:/[\w.*-]+)+/?|\w+\.py")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_FILE: Final = re.compile(r"\w+\.(json|jsonl(\.1)?|toml|html)")
_OF_TEMPLATES: Final = {
    "steps",
    "inputs",
    "output",
    "state",
    "response",
    "request",
    "item",
    "models",
}
"""Names at which templates and keys of settings begin: what follows them is the user's."""
_OF_USERS: Final = {"data/agent.db", "build/site", "bench/results/latest.json"}
"""Files that only a running agent, or a command, makes."""


def marks_of(text: str) -> Iterator[str]:
    """Yield the code marks of a page; blocks of code are left out."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (mark.partition(":")[0].removesuffix("()") for mark in _MARK.findall(text))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


def docstrings_of(path: Path) -> str:
    """Return all docstrings of a module, also those of values."""
    return "\n\n".join(
        node.value.value
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@cache
def files() -> frozenset[str]:
    """Return the paths of all files and directories that have a place in the tree."""
    return frozenset(
        str(path.relative_to(ROOT)) for top in _TOP for path in (ROOT / top).rglob("*")
    )


@cache
def members() -> dict[str, set[str]]:
    """Return what modules, packages, classes, tables and sections of the settings have, by name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        stem = path.parent.name if path.stem == "__init__" else path.stem
        for directory in (path, *path.parents):
            found[directory.parent.name].add(directory.stem)
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef | ast.Module):
                names = set(chain.from_iterable(map(_names, node.body)))
                found[stem] |= names
                if isinstance(node, ast.ClassDef):
                    found[node.name] |= names
    for table in SQLModel.metadata.tables.values():
        found[table.name] |= set(table.columns.keys())
    for section, field in Settings.model_fields.items():
        found[section] |= set(getattr(field.annotation, "model_fields", ()))
    return found


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        # What an instance has is assigned in its methods.
        assigned = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
        return {node.name, *(each.attr for each in assigned if isinstance(each.ctx, ast.Store))}
    if isinstance(node, ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        within = chain.from_iterable(map(ast.walk, targets))
        return {name.id for name in within if isinstance(name, ast.Name)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.If | ast.Try):
        return set(chain.from_iterable(map(_names, node.body)))
    return set()


@cache
def words_of_strings() -> frozenset[str]:
    """Return the strings of the code that are one word with dots: events, log entries, actions."""
    constants = (
        node.value
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return frozenset(text for text in constants if _DOTTED.fullmatch(text))


def _is_path(mark: str) -> bool:
    """Whether a path exists: from the top of the clone, or as the end of one (`rules/claiming.py`)."""
    path = mark.rstrip("/")
    return (
        mark in _OF_USERS
        or (ROOT / path).exists()
        or any(ROOT.glob(path))
        or any(file.endswith((f"/{path}", f"/{path}.py")) for file in files())
    )


def _is_name(mark: str) -> bool:
    """Whether a dotted name exists, or is none of ours: its first part is no name of the code."""
    if mark in words_of_strings() or _FILE.fullmatch(mark):
        return True
    is_absolute = mark.startswith("agent.")
    first, *rest = mark.removeprefix("agent.").split(".")
    is_of_users = first in _OF_TEMPLATES and not {*rest[:1]} & members()[first]
    if not is_absolute and (is_of_users or first not in members()):
        return True
    for name in rest:
        if name not in members().get(first, {name}):
            return False
        first = name
    return not is_absolute or first in set().union(*members().values())


@pytest.mark.parametrize("page", ABOUT_CODE, ids=lambda page: page.stem)
def test_what_the_docs_about_the_code_name_exists(page: Path) -> None:
    """Each path and each dotted name in code marks."""
    assert list(_missing(page.read_text(encoding="utf-8"))) == []


def test_what_docstrings_name_exists() -> None:
    """Each path and each dotted name in code marks, in the docstrings of every module."""
    missing = {
        str(path.relative_to(ROOT)): found
        for path in MODULES
        if (found := list(_missing(docstrings_of(path))))
    }
    assert missing == {}


def test_paths_of_the_clone_that_other_pages_name_exist() -> None:
    """Where a page for users names a file of the clone, or a module, it is there."""
    for page in (ROOT / "README.md", *PAGES):
        for mark in marks_of(page.read_text(encoding="utf-8")):
            if _PATH.fullmatch(mark) and mark.split("/")[0] in _TOP:
                assert _is_path(mark), (page.name, mark)
            elif _DOTTED.fullmatch(mark) and mark.startswith("agent."):
                assert _is_name(mark), (page.name, mark)


def _missing(text: str) -> Iterator[str]:
    for mark in marks_of(text):
        if (_PATH.fullmatch(mark) and not _is_path(mark)) or (
            _DOTTED.fullmatch(mark) and not mark.endswith(".py") and not _is_name(mark)
        ):
            yield mark
