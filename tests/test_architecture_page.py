"""The walks of docs/architecture.md name functions that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_walks_name_functions_that_exist() -> None:
    """Each `file:function` of the page is defined in that file."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    references = re.findall(r"`([\w/]+\.py):(\w+)`", text)
    assert len(references) > 30
    missing = [f"{path}:{name}" for path, name in references if name not in _functions(path)]
    assert not missing


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / "agent" / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}
