"""The process that parses documents from outside: its limits, and how it ends."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from agent.triggers.watchers import parser_child, parser_process
from agent.triggers.watchers.parser_process import ParserTimeoutError, parse_apart
from agent.triggers.watchers.source import SourceError
from tests.support.attempt import run, until
from tests.support.web_polls import poll_context

OPTIONS = {
    "content_type": "text/plain",
    "select": None,
    "attribute": None,
    "jmespath": None,
    "pattern": "(a+)+b",
}


def children() -> set[int]:
    """Return the running child processes of this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(stat.parent.name))
    return found


def test_a_cancelled_poll_ends_its_process() -> None:
    """A stopping agent leaves none behind."""

    async def main() -> None:
        before = children()
        async with poll_context() as context:
            parsing = asyncio.create_task(
                parse_apart("page_document", b"a" * 200, OPTIONS, context)
            )
            await until(lambda: children() - before)
            parsing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await parsing
        assert children() == before

    run(main())


def test_the_process_ends_itself_when_its_agent_is_gone() -> None:
    """Its processor time is limited, so a killed agent leaves no computation without end."""
    header = {"parser": "page_document", "options": OPTIONS, "cpu_seconds": 1}

    async def main() -> None:
        with pytest.raises(ParserTimeoutError):
            await parser_process._run(json.dumps(header).encode() + b"\n" + b"a" * 200, 50.0)

    run(main())


def test_a_crash_of_the_parser_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a library in C ends the process only."""
    monkeypatch.setattr(
        parser_process, "_PROGRAM", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    )

    async def main() -> None:
        async with poll_context() as context:
            with pytest.raises(SourceError, match=r"crashed at this document \(exit status -11\)"):
                await parse_apart("page_document", b"x" * 1_000_000, OPTIONS, context)

    run(main())


def test_a_program_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says why."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    async def main() -> None:
        async with poll_context() as context:
            with pytest.raises(SourceError, match=r"cannot start: .*No such file"):
                await parse_apart("page_document", b"x", OPTIONS, context)

    run(main())


def test_the_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment has the basic variables, and the path where modules are found."""
    monkeypatch.setenv("SOME_TOKEN", "very-secret-token")
    environment = parser_process._environment()
    assert "SOME_TOKEN" not in environment
    assert environment["PYTHONPATH"]


def test_anything_that_a_parser_raises_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsers raise whatever comes to them at malformed documents."""
    for raised, text in (
        (KeyError("x"), "cannot be parsed (KeyError: 'x')"),
        (MemoryError(), "too much memory"),
        (RecursionError(), "nested too deep"),
    ):

        class Parser:
            @staticmethod
            def parse(body: bytes, options: object, error: BaseException = raised) -> None:
                raise error

        monkeypatch.setattr(parser_child, "import_module", lambda _, parser=Parser: parser)
        assert text in parser_child.parse("it", b"", {})["problem"]
