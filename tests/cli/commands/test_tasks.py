"""`agent tasks`: filters, search, how to see more, and mistakes in its arguments."""

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from agent.cli.output.log_text import local_time
from tests.support.cli import PATIENCE_SECONDS, PROGRAM, Cli

HELLO = "name: hello\ninputs: {word: {type: string, default: hi}}\nsteps: {say: {shell: {argv: [echo, '{{ inputs.word }}'], effect: none}}}\n"
WAITS = "name: waits\nsteps: {w: {wait: {signal: go}}}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """Return a directory with three ended tasks and one that waits."""
    cli = Cli(tmp_path_factory.mktemp("tasks"))
    cli.write("workflows/hello.yaml", HELLO)
    cli.write("workflows/waits.yaml", WAITS)
    cli("run", "waits", "--no-input", code=4)
    for word in ("Zürich", "Bern", "Basel"):
        cli("run", "hello", "-i", f"word={word}")
    return cli


def test_a_list_says_how_to_see_more(place: Cli) -> None:
    """On standard error, so that scripts read tasks only."""
    shown = place("tasks", "--limit", "2")
    assert len(shown.out.splitlines()) == 3
    assert "2 of 4 tasks; --limit 4 shows all" in shown.err
    before = shown.err.partition("--before ")[2].split()[0]
    rest = place("tasks", "--before", before, "--json").json
    assert [task["input_preview"] for task in rest] == ["word=Zürich", ""]
    assert "of 4" not in place("tasks").err


def test_filters_and_search(place: Cli) -> None:
    """Several statuses at once; a text in the input or output, in any case."""
    assert len(place("tasks", "-s", "succeeded", "-s", "running", "--json").json) == 4
    (waiting,) = place("tasks", "--waiting", "--json").json
    assert waiting["workflow"] == "waits"
    assert "waits for the signal 'go'" in place("tasks", "--waiting").out
    (found,) = place("tasks", "--search", "ZÜRICH", "--since", "1h", "--json").json
    assert found["input_preview"] == "word=Zürich"
    assert place("tasks", "--search", "nowhere").out == "no tasks match\n"
    assert place("tasks", "--since", "0s", "--json").json == []


def test_the_newest_task_has_a_name(place: Cli) -> None:
    """`last` is the newest of all, `last:WORKFLOW` the newest of one; both say when there is none."""
    newest = place("tasks", "--json").json[0]
    assert place("show", "last", "--json").json["id"] == newest["id"]
    (waiting,) = place("tasks", "--workflow", "waits", "--json").json
    assert place("show", "last:waits", "--json").json["id"] == waiting["id"]
    assert "no task yet of 'zzz'" in place("show", "last:zzz", code=3).err
    assert "`last`" in place("show", "newest", code=3).err


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["--workflow", "helo"], 3, "did you mean hello?"),
        (["--workflow", "zzz"], 3, "there are hello, waits"),
        (["--status", "waiting"], 2, "--waiting"),
        (["--activity", "asleep"], 2, "there is no activity 'asleep'"),
        (["--since", "lately"], 2, "2h or 7d"),
        (["--search", ""], 2, "1 to 200 characters"),
        (["--trigger", "none"], 3, "none"),
    ],
)
def test_mistakes_are_errors(place: Cli, arguments: list[str], code: int, hint: str) -> None:
    """An empty list would look like an answer."""
    assert hint in place("tasks", *arguments, code=code).err


def test_events_have_local_times(place: Cli) -> None:
    """As logs have them; documents have UTC."""
    first, *_ = place("events", "--from-start").out.splitlines()
    document = place("events", "--from-start", "--json").json["events"][0]
    assert first.startswith(f"{local_time(document['at'])}  ")
    assert document["at"].endswith("Z") and "Z" not in first


@pytest.mark.parametrize("command", [["tasks"], ["tasks", "--json"], ["events"]])
def test_a_closed_pipe_ends_a_command_quietly(place: Cli, command: list[str]) -> None:
    """As in `agent events | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, *command],
        check=False,
        cwd=place.directory,
        env=place.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    os.close(writing)
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("is_killed", [False, True])
def test_without_an_agent_no_task_runs(tmp_path: Path, is_killed: bool) -> None:
    """Lists, documents and counts say what it waits for, also after the agent was killed."""
    cli = Cli(tmp_path)
    cli.write("workflows/hello.yaml", HELLO)
    cli("run", "hello", "--detach")
    if is_killed:
        with closing(sqlite3.connect(next(tmp_path.rglob("agent.db")))) as database, database:
            database.execute("UPDATE tasks SET steps_running = 1")
            sql = "UPDATE steps SET status = 'running', owner = 'killed', claim_turn = 1"
            database.execute(sql)
    for command in (("tasks",), ("show", "last"), ("status",), ("doctor",)):
        shown = cli.run_any(*command).out
        assert "waiting for an agent" in shown, shown
        assert "● running" not in shown and "1 running" not in shown, shown
    assert cli("tasks", "--json").json[0]["status"] == "running"
