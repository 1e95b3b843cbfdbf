"""Documentation that is true: files are valid, commands run and print what the pages show."""

import ast
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config import loader
from agent.workflows.compile.compiler import check_text
from agent.workflows.diagnostics import show
from tests.docs.blocks import Block, blocks_of, indented_lines, name_of, pages
from tests.docs.reader import Reader
from tests.docs.usage import option_problems

EXEMPT = 25
"""How many blocks are marked `no-run: REASON`. A new one is a decision: change this number with it."""

PAGES = [page for page in pages() if "decisions" not in page.parts]
LANGUAGES = {"console", "yaml", "toml", "json", "python", "usage", "text", "mermaid", "sh"}


def _blocks(*languages: str) -> list[Block]:
    return [
        block
        for page in PAGES
        for block in blocks_of(page)
        if block.language in languages and block.no_run is None
    ]


def _place(block: Block) -> str:
    return block.place


def test_every_block_says_what_it_is() -> None:
    """Each block has a language, so that a test knows what to do with it."""
    unknown = [
        block.place
        for page in PAGES
        for block in blocks_of(page)
        if block.language not in LANGUAGES
    ]
    assert unknown == []
    indented = {name_of(page): lines for page in PAGES if (lines := indented_lines(page))}
    assert indented == {}, "use a fence with a language"


def test_exempt_blocks_are_counted() -> None:
    """Commands and files that no test runs are few, and each says why."""
    exempt = [block for page in PAGES for block in blocks_of(page) if block.no_run is not None]
    assert len(exempt) == EXEMPT, "\n".join(f"{block.place}: {block.no_run}" for block in exempt)
    assert [block.place for block in exempt if len(str(block.no_run)) < 10] == []


def test_shell_scripts_are_exempt_or_consoles() -> None:
    """A block `sh` is never run: what can run is a console."""
    assert [block.place for block in _blocks("sh")] == []


def test_plain_text_holds_no_command() -> None:
    """A block `text` shows a picture or a message, never something to type."""
    typed = re.compile(r"^\s*(\$ |agent [a-z]|make [a-z])", re.MULTILINE)
    assert [block.place for block in _blocks("text") if typed.search(block.text)] == []


@pytest.mark.parametrize("block", _blocks("yaml"), ids=_place)
def test_workflows_are_valid(block: Block) -> None:
    """Every YAML block is a workflow without problems."""
    problems = check_text(block.text, block.place)
    assert problems == [], show(problems, {block.place: block.text})


@pytest.mark.parametrize("block", _blocks("toml"), ids=_place)
def test_configuration_is_valid(block: Block, tmp_path: Path) -> None:
    """Every TOML block is a part of a configuration that the agent accepts."""
    tomllib.loads(block.text)
    file = tmp_path / "config.toml"
    file.write_text(block.text, encoding="utf-8")
    loader.load(file, {})


@pytest.mark.parametrize("block", _blocks("json"), ids=_place)
def test_documents_are_json(block: Block) -> None:
    """Every JSON block can be read."""
    json.loads(block.text)


@pytest.mark.parametrize("block", _blocks("python"), ids=_place)
def test_modules_compile(block: Block) -> None:
    """Every Python block is valid; those with a title are used by the page's commands."""
    ast.parse(block.text)


@pytest.mark.parametrize("block", _blocks("usage"), ids=_place)
def test_usage_names_commands_and_options_that_exist(block: Block) -> None:
    """Each line of a synopsis is a command with options that its help lists."""
    problems = [
        problem
        for line in block.text.splitlines()
        if line.strip()
        for problem in option_problems(shlex.split(line, comments=True))
    ]
    assert problems == [], block.place


@pytest.fixture
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reader]:
    """Return a reader in an empty directory; with the clone's examples where the page has them."""
    page: Path = request.param
    has_examples = "<!-- run-in: clone -->" in page.read_text(encoding="utf-8")
    before = os.umask(0o077)
    reader = Reader(tmp_path, has_examples=has_examples)
    yield reader
    reader.close()
    os.umask(before)


def _followed() -> list[Path]:
    return [
        page
        for page in PAGES
        if any(block.language == "console" and block.no_run is None for block in blocks_of(page))
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("page", "reader"), [(page, page) for page in _followed()], indirect=["reader"], ids=name_of
)
def test_what_a_page_shows_happens(page: Path, reader: Reader) -> None:
    """A reader who types a page's commands in order sees what the page shows."""
    for block in blocks_of(page):
        if block.no_run is not None:
            continue
        if block.title is not None:
            reader.write(block)
        elif block.language == "console":
            reader.follow(block)
