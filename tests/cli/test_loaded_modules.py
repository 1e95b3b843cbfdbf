"""How fast a command feels: it loads no heavy library that it does not need.

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
print(json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]), file=sys.stderr)
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


def loaded(cli: Cli, *arguments: str) -> set[str]:
    """Return the packages that a command loads in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=cli.directory,
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    code, packages = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(packages)


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
    packages = loaded(cli, *arguments)
    assert not packages & (HEAVY | {"pysqlite3", "sqlite3"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["tasks"],
        ["tasks", "--limit", "5"],
        ["show", "TASK"],
        ["approvals"],
        ["pause", "TASK"],
        ["run", "--detach", "flow.yaml"],
    ],
)
def test_everyday_commands_need_the_driver_and_little_else(
    cli: Cli, task: str, arguments: list[str]
) -> None:
    """On SQLite: no SQLAlchemy, no structlog, no pydantic, no typer, no event loop, no templates."""
    packages = loaded(cli, *(task if word == "TASK" else word for word in arguments))
    assert not packages & HEAVY


def test_a_file_whose_comments_changed_is_compiled_once(cli: Cli, task: str) -> None:
    """It has the graph that is recorded: the next start needs no compiler, as with an unchanged file."""
    cli.write("flow.yaml", f"{FLOW}# {task}\n")
    assert "ruamel" in loaded(cli, "run", "--detach", "flow.yaml")
    packages = loaded(cli, "run", "--detach", "flow.yaml")
    assert not packages & HEAVY


def test_on_postgresql_the_same_command_adds_the_driver(
    tmp_path: Path, empty_postgres_url: str
) -> None:
    """With PostgreSQL psycopg comes on top, and what psycopg itself loads."""
    cli = Cli(tmp_path, AGENT_DATABASE__URL=empty_postgres_url)
    cli("db", "upgrade")
    packages = loaded(cli, "tasks")
    assert "psycopg" in packages
    assert not packages & (HEAVY - {"psycopg", "asyncio", "email", "ssl", "tomllib"})


def test_validate_loads_the_compiler_and_no_engine(cli: Cli) -> None:
    """Right files are checked without a database, a log or pydantic; unchanged ones without the compiler."""
    cli.write("config.toml", "[engine]\nslots = 7\n")
    cli.write("flow.yaml", FLOW)
    packages = loaded(cli, "validate", "flow.yaml")
    assert not packages & (HEAVY | {"dataclasses", "inspect", "pysqlite3", "sqlite3"}) - {
        "ruamel",
        "tomllib",
    }
    packages = loaded(cli, "validate", "flow.yaml")
    assert not packages & (HEAVY | {"pysqlite3", "sqlite3"})
