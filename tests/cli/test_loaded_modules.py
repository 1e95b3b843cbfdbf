"""How fast a command feels: it loads what it needs, counted in modules, which no busy machine changes.

`python -m bench --only cli` measures the processor time that follows from it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Cli

LOADED = """
import json, sys
from agent.cli.main import main
sys.argv = ["agent", *sys.argv[1:]]
code = 0
try:
    main()
except SystemExit as end:
    code = end.code or 0
names = sorted(sys.modules)
print(json.dumps([code, len(names), sorted({name.split(".")[0] for name in names})]), file=sys.stderr)
"""
HEAVY = {
    "alembic", "anthropic", "apscheduler", "asyncio", "click", "email", "fastapi", "httpx", "jinja2",
    "jsonschema_rs", "mcp", "openai", "orjson", "prompt_toolkit", "psycopg", "pydantic", "rich", "ruamel",
    "sqlalchemy", "sqlmodel", "ssl", "structlog", "tomlkit", "tomllib", "typer", "uvicorn",
}  # fmt: skip
FLOW = """\
name: flow
inputs: {name: {type: string, default: you}}
steps:
  one: {shell: {argv: [echo, "{{ inputs.name }}"], effect: none}}
  two: {depends_on: [one], wait: 1h}
"""


def loaded(cli: Cli, *arguments: str) -> tuple[int, set[str]]:
    """Return how many modules a command loads in a new process, and the packages among them."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=cli.directory,
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code, count, packages = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return count, set(packages)


@pytest.fixture
def task(cli: Cli) -> str:
    """Return a task of a file that is recorded, under a configuration that was checked."""
    cli("init")
    cli.write("flow.yaml", FLOW)
    task_id: str = cli("run", "--detach", "flow.yaml", "--json").json["id"]
    return task_id


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["--version"]])
def test_what_is_about_the_program_itself_loads_no_library(cli: Cli, arguments: list[str]) -> None:
    """Help and version need nothing of the engine."""
    count, packages = loaded(cli, *arguments)
    assert not packages & (HEAVY | {"pysqlite3", "sqlite3"})
    assert count <= 100


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (["tasks"], 170),
        (["tasks", "--limit", "5"], 170),
        (["show", "TASK"], 205),
        (["approvals"], 175),
        (["pause", "TASK"], 202),
        (["run", "--detach", "flow.yaml"], 225),
    ],
)
def test_everyday_commands_need_the_driver_and_little_else(
    cli: Cli, task: str, arguments: list[str], most: int
) -> None:
    """On SQLite: no SQLAlchemy, no structlog, no pydantic, no typer, no event loop, no templates."""
    count, packages = loaded(cli, *(task if word == "TASK" else word for word in arguments))
    assert not packages & HEAVY
    assert count <= most


def test_a_file_whose_comments_changed_is_compiled_once(cli: Cli, task: str) -> None:
    """It has the graph that is recorded: the next start needs no compiler, as with an unchanged file."""
    cli.write("flow.yaml", f"{FLOW}# {task}\n")
    compiling, _ = loaded(cli, "run", "--detach", "flow.yaml")
    count, packages = loaded(cli, "run", "--detach", "flow.yaml")
    assert not packages & HEAVY
    assert count <= 225 < compiling


def test_on_postgresql_the_same_command_adds_the_driver(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    """With PostgreSQL psycopg comes on top, and what psycopg itself loads."""
    cli = Cli(tmp_path, AGENT_DATABASE__URL=empty_postgres_url)
    cli("db", "upgrade")
    _, packages = loaded(cli, "tasks")
    assert "psycopg" in packages
    assert not packages & (HEAVY - {"psycopg", "asyncio", "email", "ssl", "tomllib"})


def test_validate_loads_the_compiler_and_no_engine(cli: Cli) -> None:
    """Right files are checked without a database, a log or pydantic; unchanged ones without the compiler."""
    cli.write("config.toml", "[engine]\nslots = 7\n")
    cli.write("flow.yaml", FLOW)
    count, packages = loaded(cli, "validate", "flow.yaml")
    assert not packages & (HEAVY | {"dataclasses", "inspect", "pysqlite3", "sqlite3"}) - {
        "ruamel",
        "tomllib",
    }
    assert count <= 230
    count, packages = loaded(cli, "validate", "flow.yaml")
    assert not packages & (HEAVY | {"pysqlite3", "sqlite3"})
    assert count <= 130
