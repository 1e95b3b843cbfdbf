"""What users and databases see, as texts: each is recorded in `records/`, and compared by a test.

    python -m tests.golden.records

writes the records again. A record that changed is a defect, unless a line of `improvements.txt` says what is better:
the record's name, the first characters of its new hash, and the reason. Records are made of what depends on nothing
but the program.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from agent import __version__
from agent.cli.program import program
from agent.core.ids import content_hash
from agent.mcp.tool_catalog import route_tools
from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.server import Running

DIRECTORY: Final = Path(__file__).parent / "records"
IMPROVEMENTS: Final = Path(__file__).parent / "improvements.txt"
HASH_CHARACTERS: Final = 12


def records(home: Path) -> dict[str, str]:
    """Return each record by the name of its file."""
    database = Database(f"sqlite:///{home}/agent.db")
    migrate.upgrade(database)
    with Running(database, home) as running, running.client() as client:
        description = client.get("/api/v1/openapi.json").json()
    description["info"]["version"] = "VERSION"
    return {
        "openapi.json": _json(description),
        "mcp-tools.json": _json(_tools(description)),
        "help.txt": "\n".join(_helps()),
        "sqlite.sql": "\n".join(_ddl(database)),
    }


def digest(text: str) -> str:
    """Return the beginning of a record's hash, as the list of improvements has it."""
    return content_hash(text)[:HASH_CHARACTERS]


def improvements() -> dict[str, str]:
    """Return the hash that each record has after its last improvement, by name."""
    lines = IMPROVEMENTS.read_text(encoding="utf-8").splitlines()
    entries = (line.split(maxsplit=2) for line in lines if line and not line.startswith("#"))
    return {name: value for name, value, reason in entries if reason}


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _tools(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "scope": tool.scope,
            "description": tool.description,
            "input": tool.input_schema,
        }
        for tool in route_tools(description).values()
    ]


def _helps() -> Iterator[str]:
    """Yield the help of every command, as `--help` prints it at 100 columns."""
    root: Any = program()
    yield from _help(root, ["agent"])


def _help(command: Any, path: list[str]) -> Iterator[str]:
    context = click.Context(
        command, info_name=" ".join(path), max_content_width=100, terminal_width=100
    )
    yield f"$ {' '.join(path)} --help"
    yield command.get_help(context).replace(__version__, "VERSION")
    yield ""
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _help(command.get_command(context, name), [*path, name])


def _ddl(database: Database) -> Iterator[str]:
    with database.connect("reader") as connection:
        rows = connection.query("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    for kind, name, sql in rows:
        yield f"-- {kind} {name}\n{sql or ''}\n"


def main() -> int:
    """Write the records."""
    DIRECTORY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        for name, text in records(Path(home)).items():
            (DIRECTORY / name).write_text(text, encoding="utf-8")
            print(f"{name} {digest(text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
