"""The documentation as a site: it builds without a warning and loads nothing from elsewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT


def _build(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Build the site by the command of `make docs`."""
    recipe = re.search(r"\$\(BIN\)/mkdocs (.+)", (ROOT / "Makefile").read_text("utf-8"))
    assert recipe is not None
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *recipe[1].split(), "--site-dir", directory, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; MkDocs fails on its first warning."""
    directory = tmp_path_factory.mktemp("site")
    done = _build(directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    """A page that does not exist, and a heading that its page does not have."""
    (tmp_path / "docs").mkdir()
    page = (
        "# Start\n\n[a page](nowhere.md), [a heading](index.md#nothing), [both](index.md#start)\n"
    )
    (tmp_path / "docs" / "index.md").write_text(page, encoding="utf-8")
    settings = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "nav": ["index.md"]}
    (tmp_path / "mkdocs.yml").write_text(
        json.dumps({**settings, "hooks": [], "theme": {"name": "mkdocs"}}), encoding="utf-8"
    )
    done = _build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 2
    assert "'nowhere.md'" in warnings[0] and "'index.md#nothing'" in warnings[1]


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
