"""The documentation as a site: it builds without a warning and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; MkDocs fails on its first warning, such as a link that leads nowhere."""
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_every_page_is_on_the_site(site: Path) -> None:
    """Pages of docs, and those made from other files, are there."""
    sources = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    names = {str(path.with_suffix(".html")).replace("README", "index") for path in sources}
    names |= {"changelog.html", "config.html", "contributing.html", "examples.html"}
    assert sorted(name for name in names if not (site / name).exists()) == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """The site works without a network: scripts, styles, fonts and pictures are its own."""
    loads = re.compile(r"<(?:script|img|link rel=.?stylesheet)[^>]+(?:src|href)=.?https?://")
    assert [
        path.name for path in site.rglob("*.html") if loads.search(path.read_text("utf-8"))
    ] == []


def test_search_needs_no_network(site: Path) -> None:
    """The index is a file of the site and knows the words of the pages."""
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "idempotency_outcomes" in index
