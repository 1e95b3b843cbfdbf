"""`agent up` and those who talk to it from other processes."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.cli.commands.up import _print_workflow
from agent.cli.output import terminal
from agent.workflows.directory import read_entry
from tests.support.cli import PATIENCE_SECONDS, PROGRAM, ROOT, Cli
from tests.support.free_port import free_port

pytestmark = pytest.mark.process

SECONDS = f"600.{os.getpid()}"
"""How long a step sleeps that never ends by itself: a value that no other process uses."""

QUICK = """\
name: quick
steps:
  one: {shell: {argv: [echo, one], effect: none}}
  two: {depends_on: [one], shell: {argv: [echo, two], effect: none}}
"""

SIGNALLED = """\
name: signalled
steps:
  ask: {wait: {signal: go}}
  tell:
    depends_on: [ask]
    shell: {argv: [echo, "{{ steps.ask.output.word }}"], effect: none}
output: "{{ steps.tell.output.stdout | trim }}"
"""

SLEEPER = f"""\
name: sleeper
steps:
  sleep:
    shell: {{argv: [sleep, "{SECONDS}"], effect: none}}
    retry: {{max_attempts: 9, delay: 10ms}}
"""

EFFECT = f"""\
name: effect
steps:
  send:
    shell: {{argv: [sh, -c, "echo sent >> effects; sleep {SECONDS}"]}}
    retry: {{max_attempts: 3, delay: 10ms}}
"""


REFUSED = """\
name: refused
steps:
  send:
    python: "refused_steps:send"
    retry: {max_attempts: 3, delay: 10ms}
"""

REFUSED_STEPS = f"""\
import time
from pathlib import Path

from agent.steps.types.errors import DefiniteFailure


def send(ctx):
    def refuse():
        with Path("sent").open("a") as file:
            file.write("sent\\n")
        raise DefiniteFailure("no such account", code="status_401", may_retry=False)

    try:
        ctx.call("pay", {{"attempt": ctx.attempt}}, refuse)
    except DefiniteFailure:
        if ctx.attempt == 1:
            ctx.save("refused")
            Path("noted").touch()
            time.sleep({SECONDS})
        raise
"""

STUBBORN = f"""\
name: stubborn
steps:
  deaf: {{shell: {{script: "trap '' TERM; touch deaf; sleep {SECONDS} & wait; wait", effect: none}}}}
  send:
    shell: {{script: "touch sent; sleep {SECONDS}"}}
    retry: {{max_attempts: 3, delay: 10ms}}
"""


def _step(document: Any, name: str) -> Any:
    (found,) = [step for step in document["steps"] if step["name"] == name]
    return found


def test_the_greeting_says_how_to_open_the_dashboard(tmp_path: Path) -> None:
    """A person sees at once that there are pages, and how to get to them."""
    cli = Cli(tmp_path, AGENT_SERVER__PORT=str(free_port()))
    cli.write("workflows/sound.yaml", "name: sound\nsteps: {a: {wait: 1ms}}\n")
    with cli.daemon() as process:
        assert process.stdout is not None
        greeting = "".join(iter(process.stdout.readline, "in another terminal, try:\n"))
    assert "dashboard: `agent open` opens it in a browser" in greeting
    assert "no one is notified of questions and failures" in greeting
    assert "HTTP API: http://127.0.0.1:" in greeting


def test_the_greeting_names_what_is_amiss(tmp_path: Path) -> None:
    """A broken file is one line that names the next command; a port in use is reported."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cli = Cli(tmp_path, AGENT_SERVER__PORT=str(taken.getsockname()[1]))
        cli.write(
            "workflows/broken.yaml", "name: broken\nsteps: {a: {shel: x}, b: {depends_on: c}}\n"
        )
        cli.write("workflows/sound.yaml", "name: sound\nsteps: {a: {wait: 1ms}}\n")
        with cli.daemon() as process:
            assert process.stdout is not None
            greeting = "".join(iter(process.stdout.readline, "in another terminal, try:\n"))
            assert "agent run sound --wait" in process.stdout.readline()
            log = cli.directory / "daemon.log"
            cli.wait_for(lambda: "workflow.broken" in log.read_text())
    assert "broken           3 problems: `agent validate` shows them\n" in greeting
    assert "  sound" in greeting
    assert "workflow.loaded" not in log.read_text()
    assert "no HTTP API: port " in greeting


def test_a_daemon_takes_what_others_hand_over(cli: Cli) -> None:
    """`run` hands over and returns; `run --wait` and `watch` follow; commands act at once."""
    cli.environment["AGENT_SERVER__PORT"] = "0"
    cli.write("workflows/quick.yaml", QUICK)
    cli.write("workflows/signalled.yaml", SIGNALLED)
    with cli.daemon():
        assert "queued task" in cli("run", "quick").out
        assert cli("run", "quick", "--wait", "--json").json["status"] == "succeeded"
        (first, second) = cli.wait_for(
            lambda: (
                cli("tasks", "--status", "succeeded", "--json").json[1:]
                and cli("tasks", "--json").json
            )
        )
        assert first["workflow"] == second["workflow"] == "quick"

        task_id = cli("run", "signalled", "--json").json["id"]
        cli.wait_for(lambda: _step(cli.task(task_id), "ask")["status"] == "waiting")
        assert cli("watch", task_id, "--json", code=4).json["id"] == task_id
        assert "agent signal" in cli("watch", task_id, code=4).out
        assert cli("signal", task_id, "go", '{"word": "ho"}').out
        done = cli.wait_for(lambda: (task := cli.task(task_id))["status"] == "succeeded" and task)
        assert done["output"] == "ho"

        checked = cli("doctor", "--deep", "--json").json
        assert checked["ok"] is True
        assert {"database", "agent", "workflows"} <= {each["what"] for each in checked["findings"]}


def test_pause_and_cancel_reach_a_step_in_flight(cli: Cli) -> None:
    """A canceled task's process is ended, not left behind."""
    cli.write("sleeper.yaml", SLEEPER)
    with cli.daemon():
        task_id = cli("run", "sleeper.yaml", "--json").json["id"]
        cli.wait_for(lambda: _step(cli.task(task_id), "sleep")["status"] == "running")
        assert cli("cancel", task_id, "--json").json["changed"] is True
        assert cli.task(task_id)["status"] == "canceled"
        cli.wait_for(lambda: not _children_named("sleep", SECONDS))


def test_one_daemon_at_a_time(cli: Cli) -> None:
    """A second `agent up` on the same SQLite database is refused, naming the first."""
    with cli.daemon() as first:
        result = cli("up", code=3)
        assert "already running" in result.err
        assert str(first.pid) in result.err


INTERRUPTING = [signal.SIGTERM, signal.SIGINT]
if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
    # Under nohup it is ignored, and processes that are started inherit that.
    INTERRUPTING.append(signal.SIGHUP)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_ends_in_time_and_the_next_goes_on(cli: Cli, number: signal.Signals) -> None:
    """A signal ends it with code 0; a step in flight goes on in the next daemon."""
    cli.write("sleeper.yaml", SLEEPER)
    cli.write("config.toml", "[engine]\nshutdown_seconds = 30.0\n")
    with cli.daemon() as process:
        task_id = cli("run", "sleeper.yaml", "--json").json["id"]
        cli.wait_for(lambda: _step(cli.task(task_id), "sleep")["status"] == "running")
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert not _children_named("sleep", SECONDS)
    assert cli.task(task_id)["status"] == "running"
    with cli.daemon():
        cli.wait_for(lambda: _step(cli.task(task_id), "sleep")["status"] == "running")
        cli("cancel", task_id)


def test_attempts_that_outlast_the_grace_period_are_released(cli: Cli) -> None:
    """SIGTERM ends a daemon in time whatever its steps do, and it keeps no claim."""
    cli.write("stubborn.yaml", STUBBORN)
    cli.write("config.toml", "[engine]\nshutdown_seconds = 1.0\n")
    with cli.daemon() as process:
        task_id = cli("run", "stubborn.yaml", "--json").json["id"]
        begun = [cli.directory / name for name in ("deaf", "sent")]
        cli.wait_for(lambda: all(path.exists() for path in begun))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert not _children_named("sleep", SECONDS)
    task = cli.task(task_id)
    assert task["status"] == "running"
    deaf, send = _step(task, "deaf"), _step(task, "send")
    # The one has nothing to find out; what the other did must be, by an attempt of its own.
    assert (deaf["status"], deaf["attempt"]) == ("pending", 1)
    assert (send["status"], send["attempt"]) == ("pending", 2)
    with cli.daemon():
        cli.wait_for(lambda: _step(cli.task(task_id), "send")["status"] == "waiting")
        cli("cancel", task_id)


def test_an_unknown_effect_is_put_to_a_person(cli: Cli) -> None:
    """After a kill in mid-effect nothing is repeated until a person resolves it; the start says so last."""
    cli.write("effect.yaml", EFFECT)
    cli.write("asking.yaml", "name: asking\nsteps: {ask: {approval: {message: Now?}}}\n")
    with cli.daemon() as process:
        asking = cli("run", "asking.yaml", "--json").json["id"]
        cli.wait_for(lambda: _step(cli.task(asking), "ask")["status"] == "waiting")
        task_id = cli("run", "effect.yaml", "--json").json["id"]
        effects = cli.directory / "effects"
        cli.wait_for(lambda: effects.exists() and effects.read_text() == "sent\n")
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    with cli.daemon() as process:
        assert process.stdout is not None
        read = process.stdout.readline
        line = cli.wait_for(lambda: (text := read()).startswith("waiting") and text)
        assert line == "waiting for you: 1 question, 1 unknown effect (send): `agent approvals`\n"
        cli.wait_for(lambda: _step(cli.task(task_id), "send")["status"] == "waiting")
        assert "agent resolve" in cli("show", task_id).out
        found = cli("doctor", "--json").json["findings"]
        assert any(each["what"] == "unknown" for each in found)
        answer = cli("resolve", task_id, "send", "--done", "--output", '{"id": 7}', "--json").json
        assert answer["changed"] is True
        done = cli.wait_for(lambda: (task := cli.task(task_id))["status"] == "succeeded" and task)
        assert _step(done, "send")["output"] == {"id": 7}
        lines = (cli.directory / "daemon.log").read_text().splitlines()
        (asked,) = [
            line for line in map(json.loads, lines) if line["event"] == "approval.requested"
        ]
        assert asked["data"]["kind"] == "unknown", "what an event tells is a value, not its text"
    assert effects.read_text() == "sent\n"
    assert not _children_named("sleep", SECONDS)


def test_a_final_failure_on_record_is_applied_after_a_kill(cli: Cli) -> None:
    """The refused request is not sent again: the next daemon fails the step from the record."""
    cli.write("refused_steps.py", REFUSED_STEPS)
    cli.write("refused.yaml", REFUSED)
    sent, noted = cli.directory / "sent", cli.directory / "noted"
    with cli.daemon() as process:
        task_id = cli("run", "refused.yaml", "--json").json["id"]
        cli.wait_for(noted.exists)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    with cli.daemon():
        failed = cli.wait_for(lambda: (task := cli.task(task_id))["status"] == "failed" and task)
    assert failed["error"]["code"] == "status_401"
    assert _step(failed, "send")["attempt"] == 2
    assert sent.read_text() == "sent\n"


def test_a_killed_daemons_commands_do_not_outlive_the_next_start(cli: Cli) -> None:
    """A command without an effect, which has no record, is also found and ended."""
    cli.write("sleeper.yaml", SLEEPER)
    with cli.daemon() as process:
        task_id = cli("run", "sleeper.yaml", "--json").json["id"]
        (orphan,) = cli.wait_for(lambda: _children_named("sleep", SECONDS))
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    assert _children_named("sleep", SECONDS) == [orphan]
    with cli.daemon():
        (again,) = cli.wait_for(
            lambda: (found := _children_named("sleep", SECONDS)) != [orphan] and found
        )
        assert again != orphan
        cli("cancel", task_id)


def test_run_goes_on_when_the_daemon_dies(cli: Cli) -> None:
    """A command that waits takes the task over when the process that ran it is gone."""
    cli.write(
        "nap.yaml", "name: nap\nsteps: {nap: {wait: 3s}, end: {depends_on: [nap], wait: 1ms}}\n"
    )
    with cli.daemon() as process:
        waiting = subprocess.Popen(
            [*PROGRAM, "run", "nap.yaml", "--wait", "--json"],
            cwd=cli.directory,
            env=cli.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        with waiting:
            cli.wait_for(lambda: cli("tasks", "--json").json)
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)
            assert waiting.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("number", INTERRUPTING)
def test_an_interrupted_run_leaves_a_task_that_can_go_on(cli: Cli, number: signal.Signals) -> None:
    """Ctrl-C ends the command and its step's process, and says how the task goes on."""
    cli.write("sleeper.yaml", SLEEPER)
    cli.write("config.toml", "[engine]\nshutdown_seconds = 30.0\n")
    with subprocess.Popen(
        [*PROGRAM, "run", "sleeper.yaml"],
        cwd=cli.directory,
        env=cli.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        cli.wait_for(lambda: _children_named("sleep", SECONDS))
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "agent up" in errors
    assert not _children_named("sleep", SECONDS)
    (task,) = cli("tasks", "--json").json
    assert task["status"] == "running"


def test_up_starts_a_first_task(cli: Cli) -> None:
    """`agent up --run FILE` starts one task and suggests how to show it."""
    path = cli.write("quick.yaml", QUICK)
    with cli.daemon("--run", str(path)):
        cli.wait_for(lambda: cli("tasks", "--status", "succeeded", "--json").json)


def test_changed_files_become_versions(cli: Cli) -> None:
    """The daemon notices new and changed workflow files, and says what is wrong with them."""
    with cli.daemon():
        path = cli.write("workflows/quick.yaml", QUICK)
        cli.wait_for(lambda: _version_of(cli, "quick") == 1)
        path.write_text(QUICK.replace("echo, two", "echo, three"), encoding="utf-8")
        cli.wait_for(lambda: _version_of(cli, "quick") == 2)
        path.write_text("name: quick\nsteps: {}\n", encoding="utf-8")
        cli.wait_for(lambda: cli("workflows", "list", "--json").json[0]["remarks"])
        assert _version_of(cli, "quick") == 2


def test_make_run_shows_a_newcomer_something(tmp_path: Path) -> None:
    """What `make run` starts runs the examples' first workflow to its end."""
    cli = Cli(tmp_path, AGENT_WORKFLOWS__DIRECTORY=str(ROOT / "examples"))
    with cli.daemon("--run", str(ROOT / "examples" / "hello.yaml")):
        (task,) = cli.wait_for(lambda: cli("tasks", "--status", "succeeded", "--json").json)
        assert task["workflow"] == "hello"


def _version_of(cli: Cli, name: str) -> Any:
    listed = cli("workflows", "list", "--json").json
    return next((entry["version"] for entry in listed if entry["name"] == name), None)


def _children_named(*argv: str) -> list[int]:
    """Return running processes with exactly these arguments, whatever their parent is now."""
    wanted = b"\0".join(word.encode() for word in argv) + b"\0"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "cmdline").read_bytes() == wanted:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_workflows_fit_the_terminal_and_remarks_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A long description ends with dots where the line ends; what will fail is printed in full."""
    file = tmp_path / "flow.yaml"
    step = "  one: {shell: {argv: [echo], effect: none}}"
    file.write_text(f"name: flow\ndescription: {'word ' * 30}\nsteps:\n{step}\n")
    remark = "step one: " + "a remark that is longer than the terminal is wide, " * 2
    monkeypatch.setattr(terminal, "width", lambda: 80)
    _print_workflow(read_entry(file), [remark])
    first, second = capsys.readouterr().out.splitlines()
    assert (first[:18], len(first), first[-1]) == ("  flow            ", 80, "…")
    assert second == f"    {remark}"
