"""Lines of the daemon's log are found by their event: a dotted name, the thing first, then what happened."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEVELS = ("debug", "info", "warning", "error", "exception")
EVENT = re.compile(r"[a-z_]+(\.[a-z_]+)+")


def literal_events(path: Path) -> Iterator[tuple[str, str]]:
    """Yield where a module logs with structlog, and the event, if it is written out."""
    text = path.read_text(encoding="utf-8")
    if "structlog.get_logger" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "log"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield f"{path.relative_to(ROOT)}:{node.lineno}", str(node.args[0].value)


def test_log_events_are_dotted_names() -> None:
    """A sentence would have to be searched for, and would change with its wording."""
    events = [found for path in (ROOT / "agent").rglob("*.py") for found in literal_events(path)]
    assert len(events) > 50
    assert [found for found in events if not EVENT.fullmatch(found[1])] == []
