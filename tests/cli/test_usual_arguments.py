"""The usual command line, read without typer: the same values, and nothing that typer would refuse."""

from importlib import import_module
from typing import Annotated, Any

import pytest

from agent.cli import registry, usual_arguments
from agent.cli.parameters import Argument, Option
from agent.cli.program import program


def command(
    task: Annotated[str, Argument(metavar="TASK", help="A task.")],
    more: Annotated[list[str] | None, Argument(metavar="MORE", help="More.")] = None,
    pairs: Annotated[list[str] | None, Option("--input", "-i", help="Pairs.")] = None,
    reason: Annotated[str | None, Option("--reason", help="A text.")] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=10, help="A number.")] = 5,
    *,
    as_json: Annotated[bool, Option("--json", help="A flag.")] = False,
) -> None:
    """Record its arguments."""


def read(*words: str) -> dict[str, Any] | None:
    """Return the values of a line, None if it is not a usual one."""
    try:
        return usual_arguments._Line(command).read(list(words))
    except usual_arguments._UnusualError:
        return None


def test_arguments_and_options_may_be_mixed() -> None:
    """Options by either name, values in the next word or behind an equals sign."""
    assert read("one") == {
        "task": "one", "more": None, "pairs": None, "reason": None, "limit": 5, "as_json": False
    }  # fmt: skip
    assert read("--json", "one", "-i", "a=1", "two", "--input=b=2", "-n", "7", "--reason", "") == {
        "task": "one",
        "more": ["two"],
        "pairs": ["a=1", "b=2"],
        "reason": "",
        "limit": 7,
        "as_json": True,
    }


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--json",
        "one --unknown",
        "one --lim 5",
        "one --limit",
        "one --limit x",
        "one --limit 0",
        "one --limit 11",
        "one --limit -1",
        "one -n5",
        "one -n=5",
        "one --json=yes",
        "one --reason --json",
        "one --reason a --reason b",
        "one -- --json",
        "one --help",
        "one -h",
        "-",
    ],
)
def test_every_other_line_is_left_to_typer(line: str) -> None:
    """A mistake, a rare form, or the help."""
    assert read(*line.split()) is None


def test_groups_and_unknown_commands_are_left_to_typer() -> None:
    """So are options before the command."""
    for words in ([], ["nonsense"], ["db", "check"], ["--config", "x", "tasks"], ["help", "run"]):
        assert usual_arguments.command_of(words) is None


def test_typer_reads_the_same_options_from_the_same_declarations() -> None:
    """Every option of a command that is not a group is known to both."""
    for entry in registry.COMMANDS:
        built = program().commands[entry.name]
        found = getattr(import_module(f"agent.cli.commands.{entry.module}"), entry.attribute)
        if hasattr(found, "__code__") and entry.name != "help":
            known = {spelling for each in built.params for spelling in each.opts}
            assert set(usual_arguments._Line(found)._options) <= known
