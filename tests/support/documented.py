"""The YAML blocks of docs/workflows.md."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# A fence inside a block is indented: only one at the start of a line ends it.
_BLOCK = re.compile(
    r"(<!-- no-run: [^\n]*-->\n)?^```yaml[^\n]*\n(.*?)^```\n", re.DOTALL | re.MULTILINE
)


class Documented(NamedTuple):
    """One documented workflow; `can_run` says whether it runs anywhere by itself."""

    line: int
    text: str
    can_run: bool


def documented_workflows(page: str = "workflows.md") -> list[Documented]:
    """Return every workflow of a page of the documentation, with the line that it starts in."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [
        Documented(text.count("\n", 0, match.start(2)) + 1, match[2], match[1] is None)
        for match in _BLOCK.finditer(text)
    ]
