"""The source `command`: what a program prints, how it is bounded, and that nothing of it is left."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent.steps.attempt.services import Limits
from agent.steps.process import processes
from agent.store.db.database import Database
from agent.tasks.rescue import orphan_processes
from agent.triggers.watchers.source import SourceError
from tests.support.file_polls import Watching

PATIENCE = 20.0


def watching(*argv: str, env: dict[str, str] | None = None, **options: Any) -> Watching:
    """Return a watcher of a program."""
    keys = {"argv": list(argv), "env": env or {}, "cwd": options.pop("cwd", None)}
    return Watching({"command": keys}, **options)


def script(text: str, **options: Any) -> Watching:
    """Return a watcher of a shell script."""
    return watching("/bin/sh", "-c", text, **options)


def until_gone(process_id: int) -> None:
    """Wait until a process has ended."""
    deadline = time.monotonic() + PATIENCE
    while processes.start_time(process_id) is not None:
        assert time.monotonic() < deadline, f"process {process_id} still runs"
        time.sleep(0.01)


def written(path: Path) -> int:
    """Wait for a file with a process id."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.01)
    return int(path.read_text())


def test_each_line_is_an_item() -> None:
    """With its key, a text or a number, and whatever else it holds; empty lines are skipped."""
    watcher = script("""printf '{"key": "a", "n": [1]}\\n\\n{"key": 7}\\r\\n{"key": 1.5}'""")
    assert watcher.poll() == [{"key": "a", "n": [1]}, {"key": 7}, {"key": 1.5}]
    assert watcher.keys == ["a", "7", "1.5"]


def test_of_equal_keys_the_first_counts() -> None:
    """One task for a key."""
    assert script("""echo '{"key": 1, "n": 1}'; echo '{"key": "1", "n": 2}'""").poll() == [
        {"key": 1, "n": 1}
    ]


def test_a_program_that_prints_nothing_found_nothing() -> None:
    """Its cursor stays."""
    watcher = script("true")
    watcher.cursor = "c1"
    assert watcher.poll() == [] and watcher.cursor == "c1"


@pytest.mark.parametrize("cursor", ["2026-01-01", {"since": [1, "é"]}, 7])
def test_the_next_run_gets_the_cursor_back(cursor: Any) -> None:
    """A text as it is, other values as JSON; the first run has none."""
    program = textwrap.dedent("""
        import json, os, sys
        print(json.dumps({"key": os.environ.get("AGENT_CURSOR", "none")}))
        print(json.dumps({"cursor": json.loads(sys.argv[1])}))
    """)
    watcher = watching(sys.executable, "-c", program, json.dumps(cursor))
    assert watcher.poll() == [{"key": "none"}]
    assert watcher.cursor == cursor
    (item,) = watcher.poll()
    assert (item["key"] if isinstance(cursor, str) else json.loads(item["key"])) == cursor


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plain text", "line 2 of the output is not JSON"),
        ("[1]", "line 2 of the output: expected an object"),
        ('{"title": "no key"}', "line 2 of the output: `key` must be"),
        ('{"key": true}', "line 2 of the output: `key` must be"),
        ('{"key": ""}', "line 2 of the output: `key` must be"),
        ('{"key": null}', "line 2 of the output: `key` must be"),
        ('{"key": 1, "n": NaN}', "NaN is not a JSON number"),
        ('{"key": 1, "n": "\\\\u0000"}', "line 2 of the output.n: contains a NUL"),
        ('{"key": 1, "n": "\\\\ud800"}', "line 2 of the output.n: contains a lone surrogate"),
        ('{"cursor": 1, "more": 2}', "line 2 of the output: `key` must be"),
        ("\\377", "line 2 of the output is not JSON"),
    ],
)
def test_a_bad_line_fails_the_whole_poll(line: str, message: str) -> None:
    """And names the line; what came before it is not returned."""
    watcher = script("""printf '{"key": 1}\\n'; printf "$LINE\\n" """, env={"LINE": line})
    with pytest.raises(SourceError, match=message):
        watcher.poll()


def test_sizes_are_bounded() -> None:
    """Of the output, of an item, of a cursor and of their number."""
    with pytest.raises(SourceError, match="printed more than 1000 bytes"):
        script("yes", limits=Limits(response_bytes=1000)).poll()
    big = """head -c 300000 /dev/zero | tr '\\0' x"""
    with pytest.raises(SourceError, match="an item has 3000"):
        script(f"""printf '{{"key": 1, "n": "'; {big}; echo '"}}'""").poll()
    with pytest.raises(SourceError, match="a cursor has 3000"):
        script(f"""printf '{{"cursor": "'; {big}; echo '"}}'""").poll()
    with pytest.raises(SourceError, match="3 items in one poll; at most 2"):
        script("""for n in 1 2 3; do echo "{\\"key\\": $n}"; done""", most_items=2).poll()
    watcher = script("""printf '{"key": "'; head -c 600 /dev/zero | tr '\\0' x; echo '"}'""")
    watcher.poll()
    assert watcher.keys[0].startswith("sha256:")


def test_a_failed_program_is_an_error_with_the_end_of_its_errors() -> None:
    """Also if it printed items; a signal is named as such."""
    watcher = script("""echo '{"key": 1}'; seq 100 >&2; echo no route >&2; exit 3""")
    with pytest.raises(SourceError) as failed:
        watcher.poll()
    text = str(failed.value)
    assert "the command /bin/sh ended with exit code 3" in text
    assert text.endswith("97\n98\n99\n100\nno route")
    with pytest.raises(SourceError, match="ended with signal 9"):
        script("kill -9 $$").poll()


def test_secrets_reach_the_program_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither its items, nor its cursor, nor a message."""
    monkeypatch.setenv("WATCH_TOKEN", "hunter2-of-the-watcher")
    env = {"TOKEN": "env:WATCH_TOKEN", "PLAIN": "yes"}
    report = """echo "{\\"key\\": \\"$TOKEN\\", \\"n\\": \\"$TOKEN $PLAIN\\"}" """
    watcher = script(f"""{report}; echo "{{\\"cursor\\": \\"$TOKEN\\"}}" """, env=env)
    (item,) = watcher.poll()
    assert item["n"].endswith("yes") and "hunter2" not in repr((watcher.last, watcher.cursor))
    check = f"""test "$TOKEN" = "$(cat {tmp_path}/token)" || exit 1"""
    (tmp_path / "token").write_text("hunter2-of-the-watcher")
    assert script(check, env=env).poll() == []
    for bad in ("echo $TOKEN", "echo $TOKEN >&2; false"):
        with pytest.raises(SourceError) as failed:
            script(bad, env=env).poll()
        assert "hunter2" not in str(failed.value) and "[redacted]" in str(failed.value)
    with pytest.raises(SourceError, match="env: the environment variable NO_SUCH_VARIABLE"):
        script("true", env={"TOKEN": "env:NO_SUCH_VARIABLE"}).poll()


def test_the_environment_is_that_of_a_shell_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The basic variables, those of the configuration and its own; nothing else of the agent's."""
    monkeypatch.setenv("AGENT_API_TOKEN", "of-the-agent")
    monkeypatch.setenv("AWS_PROFILE", "work")
    report = """echo "{\\"key\\": \\"$AGENT_API_TOKEN,$AWS_PROFILE,$OWN,${PATH:+path}\\"}" """
    watcher = script(report, env={"OWN": "own"}, limits=Limits(inherit=("AWS_PROFILE",)))
    assert watcher.poll() == [{"key": ",work,own,path"}]


def test_it_runs_beside_the_workflow_file(tmp_path: Path) -> None:
    """`cwd` starts there as well, and so does a program by a relative path."""
    (tmp_path / "sub").mkdir()
    program = tmp_path / "check.sh"
    program.write_text("""#!/bin/sh\necho "{\\"key\\": \\"$PWD\\"}"\n""")
    program.chmod(0o755)
    path = tmp_path / "workflow.yaml"
    assert watching("./check.sh", workflow_path=path).poll() == [{"key": str(tmp_path)}]
    watcher = watching("../check.sh", workflow_path=path, cwd="sub")
    assert watcher.poll() == [{"key": str(tmp_path / "sub")}]
    with pytest.raises(SourceError, match="there is no directory"):
        watching("true", workflow_path=path, cwd="nowhere").poll()


def test_a_missing_program_is_named() -> None:
    """On the PATH, and by its path."""
    with pytest.raises(SourceError, match="no program 'no-such-program' on the PATH"):
        watching("no-such-program").poll()
    with pytest.raises(SourceError, match="exit code 127"):
        watching("/no/such/program").poll()


def test_standard_input_is_empty() -> None:
    """A program that reads it does not wait for ever."""
    assert script("cat").poll() == []


@pytest.mark.parametrize("ignored", ["", "trap '' TERM;"])
def test_a_timeout_ends_the_program_and_its_children(tmp_path: Path, ignored: str) -> None:
    """Also one that ignores SIGTERM; none of its group is left."""
    text = f"{ignored} sleep 600 & echo $! > child; echo $$ > own; wait; wait; sleep 600"
    watcher = script(text, timeout_seconds=0.5, workflow_path=tmp_path / "w.yaml")
    watcher.limits = Limits(kill_grace_seconds=0.2)
    with pytest.raises(SourceError, match=r"did not end within 0\.5 seconds"):
        watcher.poll()
    assert not processes.group_runs(written(tmp_path / "own"))
    until_gone(written(tmp_path / "child"))


def test_a_cancelled_poll_leaves_no_process(tmp_path: Path) -> None:
    """As when the daemon's own timeout strikes, or the daemon ends."""
    watcher = script("echo $$ > own; sleep 600", workflow_path=tmp_path / "w.yaml")

    async def story() -> int:
        poll = asyncio.ensure_future(watcher.poll_once())
        group = await asyncio.to_thread(written, tmp_path / "own")
        poll.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await poll
        assert poll.cancelled()
        return group

    assert not processes.group_runs(asyncio.run(story()))


def test_children_that_outlive_the_program_are_ended(tmp_path: Path) -> None:
    """What it printed itself counts; they may hold its output open."""
    watcher = script(
        """echo '{"key": 1}'; sleep 600 & echo $! > child""", workflow_path=tmp_path / "w.yaml"
    )
    watcher.limits = Limits(kill_grace_seconds=0.2)
    assert watcher.poll() == [{"key": 1}]
    until_gone(written(tmp_path / "child"))


def test_a_program_that_outlived_its_agent_is_ended_by_the_next_start(
    tmp_path: Path, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by its mark, although no step is recorded with it."""
    # A mark of its own: other tests of recovery run at the same time.
    mark = f"AGENT_WATCHER_{uuid4().hex}"
    monkeypatch.setattr(processes, "WATCHER", mark)
    agent = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from agent.steps.process import processes
        from tests.support.file_polls import Watching
        processes.WATCHER = {mark!r}
        argv = ["/bin/sh", "-c", "echo $$ > own; sleep 600"]
        keys = {{"argv": argv, "env": {{}}, "cwd": None}}
        Watching({{"command": keys}}, Path({str(tmp_path)!r}, "w.yaml"), 600.0).poll()
    """)
    daemon = subprocess.Popen([sys.executable, "-c", agent])
    group = written(tmp_path / "own")
    try:
        with sqlite_database.connect() as connection:
            # Its agent is alive.
            assert group not in orphan_processes.end(connection, ())
            assert processes.group_runs(group)
            daemon.kill()
            daemon.wait()
            assert processes.group_runs(group)
            assert group in orphan_processes.end(connection, ())
        assert not processes.group_runs(group)
    finally:
        daemon.kill()
        daemon.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
