"""The first page: it leads to everything else, and speaks only of what there is."""

import re
from pathlib import Path

from tests.support.cli import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_page_is_linked() -> None:
    """The README links every page of the documentation, and has no dead link."""
    links = set(re.findall(r"\]\(([^)#:]+)", README))
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")}
    assert pages - links == set()
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_commands_that_are_shown_exist() -> None:
    """Each `agent …` of the tour is a command."""
    shown = set(re.findall(r"^(?:\$ )?agent ([a-z]+)", README, flags=re.MULTILINE))
    assert len(shown) > 8
    assert shown - set(COMMANDS) == set()


def test_the_changes_name_every_command() -> None:
    """What users can call is in the list of what they got."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [command for command in COMMANDS if f"`{command}`" not in changes] == []
