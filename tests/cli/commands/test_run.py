"""`agent run` without a daemon: the task runs in the command's own process."""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli

DIAMOND = """\
name: diamond
inputs:
  word: {type: string, default: hello}
  times: {type: integer, default: 2}
steps:
  start:
    shell: {argv: [echo, "{{ inputs.word }}"], effect: none}
  left:
    depends_on: [start]
    shell: {argv: [echo, "left of {{ steps.start.output.stdout | trim }}"], effect: none}
  right:
    depends_on: [start]
    shell: {argv: [echo, "right"], effect: none}
  finish:
    depends_on: [left, right]
    shell: {argv: [echo, "{{ steps.left.output.stdout | trim }}, {{ inputs.times + 1 }}"], effect: none}
output: "{{ steps.finish.output.stdout | trim }}"
"""

FAILING = """\
name: failing
steps:
  good:
    shell: {argv: [echo, fine], effect: none}
  bad:
    depends_on: [good]
    shell: {argv: [sh, -c, "echo what went wrong >&2; exit 3"], effect: none}
    retry: {max_attempts: 2, delay: 300ms, jitter: false}
  never:
    depends_on: [bad]
    shell: {argv: [echo, never], effect: none}
"""

WAITING = """\
name: waiting
steps:
  ask: {wait: {signal: go}}
"""


def test_a_task_runs_to_its_end(cli: Cli) -> None:
    """The document on standard output is the task's own; its steps' outputs flow as written."""
    cli.write("diamond.yaml", DIAMOND)
    document = cli("run", "diamond.yaml", "--json", "-i", "word=hi", "-i", "times=4").json
    assert document["status"] == "succeeded"
    assert document["workflow"] == "diamond"
    assert document["version"] == 1
    assert document["input"] == {"word": "hi", "times": 4}
    assert document["output"] == "left of hi, 5"
    assert [step["name"] for step in document["steps"]] == ["start", "left", "right", "finish"]
    assert {step["status"] for step in document["steps"]} == {"succeeded"}
    assert cli("show", document["id"], "--json").json == document


def test_a_person_sees_the_steps_and_the_result(cli: Cli) -> None:
    """Without a terminal each step gets a line on standard error, the ending goes to the output."""
    cli.write("diamond.yaml", DIAMOND)
    result = cli("run", "diamond.yaml", "--wait")
    assert "✓ succeeded finish" in result.err
    assert "succeeded" in result.out
    assert "left of hello, 3" in result.out
    assert "\x1b[" not in result.out + result.err
    listed = cli("tasks").out + cli("show", cli("tasks", "--json").json[0]["id"]).out
    assert [line for line in listed.splitlines() if line.endswith(" ")] == []


def test_a_terminal_gets_a_live_view_of_the_graph(cli: Cli) -> None:
    """On a terminal the graph is drawn as it runs, without colours where NO_COLOR is set."""
    cli.write("diamond.yaml", DIAMOND)
    own, theirs = os.openpty()
    with subprocess.Popen(
        [*PROGRAM, "run", "diamond.yaml", "--wait"],
        cwd=cli.directory,
        env=cli.environment | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        # A terminal whose last user has left reads as an error on Linux, as its end elsewhere.
        with contextlib.suppress(OSError):
            while piece := os.read(own, 65_536):
                shown += piece
        os.close(own)
    text = shown.decode()
    assert process.returncode == 0, text
    assert "├─╮" in text
    assert "finish  shell  succeeded" in text
    assert "left of hello, 3" in text
    assert "Traceback" not in text
    assert "\x1b[32m" not in text


def test_inputs_as_a_document(cli: Cli) -> None:
    """Inputs come as JSON, from an argument or standard input, and `-i` wins over them."""
    cli.write("diamond.yaml", DIAMOND)
    given = json.dumps({"word": "from", "times": 9})
    document = cli(
        "run", "diamond.yaml", "--input-json", "-", "-i", "word=over", "--json", given=given
    ).json
    assert document["input"] == {"word": "over", "times": 9}


def test_a_failed_task_is_exit_code_1(cli: Cli) -> None:
    """The error names the step; what depended on it is skipped; retry starts from what is done."""
    cli.write("failing.yaml", FAILING)
    document = cli("run", "failing.yaml", "--json", code=1).json
    assert document["status"] == "failed"
    statuses = {step["name"]: step["status"] for step in document["steps"]}
    assert statuses == {"good": "succeeded", "bad": "failed", "never": "skipped"}
    assert document["steps"][1]["attempt"] == 2
    result = cli("run", "failing.yaml", code=1)
    assert "failed" in result.out
    assert "agent retry" in result.out
    assert "pending bad (attempt 2): " in result.err
    assert "after the command ended with exit code 3: what went wrong" in result.err
    shown = cli("show", document["id"]).out
    assert "bad" in shown
    assert "agent retry" in shown
    again = cli("retry", document["id"], "--json").json
    assert again["task_id"] != document["id"]
    first = cli.task(again["task_id"])["steps"][0]
    assert first["status"] == "succeeded"


def test_a_failure_that_was_retried_says_so(cli: Cli) -> None:
    """Lists and the task itself name the retry; once that has succeeded, no count has the failure."""
    cli.write("once.yaml", "name: once\nsteps: {a: {shell: {argv: [sh, ./a.sh], effect: none}}}\n")
    script = cli.write("a.sh", "exit 3\n")
    old = cli("run", "once.yaml", "--json", code=1).json["id"]
    assert cli("status", "--json", code=3).json["failed"]["count"] == 1
    script.write_text("true\n", encoding="utf-8")
    new = cli("retry", old, "--wait", "--json").json["id"]
    assert f"retried as {new[-8:]} (succeeded); " in cli("tasks").out
    shown = cli("show", old).out
    assert f"retried as {new[-8:]} (succeeded)" in shown
    assert f"agent show {new[-8:]}" in shown
    assert "agent retry" not in shown
    assert cli("status", "--json", code=3).json["failed"]["count"] == 0
    assert "failed" not in cli("status", code=3).out
    assert "1 succeeded" in cli("doctor").out


def test_fork_runs_again_from_a_step_with_other_inputs(cli: Cli) -> None:
    """What came before the step is kept, the inputs are read as their types and checked."""
    cli.write("diamond.yaml", DIAMOND)
    old = cli("run", "diamond.yaml", "--json").json
    answer = cli("fork", old["id"], "--from", "finish", "-i", "times=7", "--json").json
    assert answer["changed"] is True
    new = cli.task(answer["task_id"])
    assert new["id"] != old["id"]
    assert new["forked_from"] == old["id"]
    assert new["input"] == {"word": "hello", "times": 7}
    assert [step["status"] for step in new["steps"]] == ["succeeded"] * 3 + ["pending"]
    assert "whole number" in cli("fork", old["id"], "--from", "finish", "-i", "times=x", code=2).err
    assert "no input" in cli("fork", old["id"], "--from", "finish", "-i", "nope=1", code=2).err
    assert "no step" in cli("fork", old["id"], "--from", "nowhere", code=3).err
    assert "did you mean 'finish'?" in cli("fork", old["id"], "--from", "finnish", code=3).err
    assert len(cli("tasks", "--json").json) == 2
    waited = cli("fork", old["id"], "--from", "left", "-i", "word=bye", "--wait", "--json").json
    assert (waited["forked_from"], waited["output"]) == (old["id"], "left of hello, 3")


def test_a_fork_without_a_step_starts_from_the_beginning(cli: Cli) -> None:
    """All steps run again. A retry has the input of its task, and names the fork that has another."""
    cli.write("diamond.yaml", DIAMOND)
    old = cli("run", "diamond.yaml", "--json").json["id"]
    refused = cli("retry", old, "-i", "word=good bye", "--wait", code=2).err
    assert f"agent fork {old} -i 'word=good bye' --wait   (from the beginning" in refused
    new = cli("fork", old, "-i", "word=good bye", "--wait", "--json").json
    assert new["input"]["word"] == "good bye"
    assert {step["status"] for step in new["steps"]} == {"succeeded"}
    assert "step.kept" not in cli("events", new["id"]).out


def test_a_retry_is_followed_to_its_end(cli: Cli) -> None:
    """With --wait the new task runs here; `show` tells what it was given and where it comes from."""
    cli.write(
        "once.yaml",
        """
name: once
inputs: {file: string, text: {type: string, default: "\\e]0;title\\ahello"}}
steps:
  look: {shell: {argv: [cat, "{{ inputs.file }}"], effect: none}, retry: {max_attempts: 1}}
  then: {depends_on: look, shell: {argv: [echo, done], effect: none}}
""",
    )
    path = cli.directory / "there.txt"
    old = cli("run", "once.yaml", "-i", f"file={path}", "--json", code=1).json
    path.write_text("x")
    result = cli("retry", old["id"], "--wait")
    assert "✓ succeeded: task" in result.out
    new = cli("tasks", "--json").json[0]["id"]
    assert f"retried as {new[-8:]}\n" in result.err
    shown = cli("show", new).out
    assert f"retry of {old['id'][-8:]}" in shown
    assert f"input file: {path}" in shown
    assert "input text: \\x1b]0;title\\x07hello" in shown
    assert "another step failed" in cli("show", old["id"]).out


def test_a_task_that_waits_on_a_person_is_exit_code_4(cli: Cli) -> None:
    """The command says what is waited for and how to answer, and leaves the task as it is."""
    cli.write("waiting.yaml", WAITING)
    document = cli("run", "waiting.yaml", "--json", code=4).json
    assert document["status"] == "running"
    assert document["steps"][0]["status"] == "waiting"
    result = cli("run", "waiting.yaml", code=4)
    assert "agent signal" in result.out
    listed = cli("tasks")
    assert "waits for the signal 'go'" in listed.out
    assert "2 tasks wait for a person or a signal: agent show " in listed.err
    assert "waits for a person" not in listed.out
    for task in cli("tasks", "--json").json:
        cli("cancel", task["id"])
    assert "waits for the signal" not in cli("tasks").out


def test_children_are_found_beside_a_file(cli: Cli) -> None:
    """A file from elsewhere brings along what it runs, at any depth, as it is at that time."""
    cli.write("elsewhere/outer.yaml", "name: outer\nsteps: {run: {workflow: {name: inner}}}\n")
    cli.write("elsewhere/inner.yaml", "name: inner\nsteps: {run: {workflow: {name: core}}}\n")
    core = "name: core\nsteps: {say: {shell: {argv: [echo, WORD], effect: none}}}\n"
    core += "output: '{{ steps.say.output.stdout | trim }}'\n"
    for word in ("one", "two"):
        cli.write("elsewhere/core.yaml", core.replace("WORD", word))
        document = cli("run", "elsewhere/outer.yaml", "--json").json
        assert document["output"] == {"run": {"run": word}}


def test_a_file_elsewhere_does_not_replace_a_known_workflow(cli: Cli) -> None:
    """The workflow of the agent's directory runs."""
    body = "steps: {say: {shell: {argv: [echo, WORD], effect: none}}}\noutput: WORD\n"
    cli.write("workflows/inner.yaml", "name: inner\n" + body.replace("WORD", "known"))
    cli.write("elsewhere/inner.yaml", "name: inner\n" + body.replace("WORD", "strange"))
    cli.write("elsewhere/outer.yaml", "name: outer\nsteps: {run: {workflow: {name: inner}}}\n")
    assert cli("run", "elsewhere/outer.yaml", "--json").json["output"] == {"run": "known"}


def test_a_child_that_waits_on_a_person_is_exit_code_4_too(cli: Cli) -> None:
    """The command ends when a child task waits for a person."""
    cli.write("workflows/waiting.yaml", WAITING)
    cli.write("workflows/parent.yaml", "name: parent\nsteps: {run: {workflow: waiting}}\n")
    result = cli("run", "parent", "--wait", code=4)
    parent = next(t["id"] for t in cli("tasks", "--json").json if t["workflow"] == "parent")
    (child,) = cli("show", parent, "--json").json["children"]
    assert f"step ask of the child task {child[-8:]} waits for a signal" in result.out
    assert f"agent signal {child[-8:]} go" in result.out
    assert "which waits for a person" in cli("show", parent).out
    cli("signal", child, "go")
    assert cli("run", "parent", "--json", code=4).json["status"] == "running"


def test_an_output_that_fails_to_render_is_the_tasks_error(cli: Cli) -> None:
    """The steps and the task have succeeded."""
    cli.write("odd.yaml", 'name: odd\nsteps: {a: {wait: 1ms}}\noutput: "{{ steps.a.output.x }}"\n')
    result = cli("run", "odd.yaml")
    assert "the workflow's output could not be computed: steps.a.output.x is missing" in result.out
    document = cli("run", "odd.yaml", "--json").json
    assert (document["status"], document["output"]) == ("succeeded", None)


def test_versions_with_other_code_are_not_equal(cli: Cli) -> None:
    """What shows and what compares agree on the steps whose code has changed."""
    cli.write("workflows/coded.yaml", "name: coded\nsteps: {a: {shell: {argv: [sh, ./a.sh]}}}\n")
    script = cli.write("a.sh", "true\n")
    first = cli("run", "coded", "--json").json["id"]
    script.write_text("echo more\n", encoding="utf-8")
    assert "the code of step a has changed" in cli("show", first).out
    assert cli("run", "coded", "--json").json["version"] == 2
    compared = cli("workflows", "compare", "coded", "1", "2").out
    assert compared == "the code of step a differs\ntheir sources are the same\n"
    assert cli("workflows", "compare", "coded", "1", "2", "--json").json["changed_code"] == ["a"]
    assert cli("workflows", "compare", "coded", "2", "2").out == "the versions are equal\n"


def test_names_are_found_in_the_workflow_directory(cli: Cli) -> None:
    """A workflow can be run by its name; a changed file is a new version."""
    path = cli.write("workflows/diamond.yaml", DIAMOND)
    first = cli("run", "diamond", "--json").json
    path.write_text(DIAMOND.replace("right", "wrong"), encoding="utf-8")
    second = cli("run", "diamond", "--json").json
    assert (first["version"], second["version"]) == (1, 2)
    listed = cli("workflows", "list", "--json").json
    assert [(entry["name"], entry["version"], entry["tasks"]) for entry in listed] == [
        ("diamond", 2, 1)
    ]
    assert "+" in cli("workflows", "compare", "diamond", "1", "2").out
    shown = cli("workflows", "show", "diamond", "--json").json
    assert [version["version"] for version in shown["versions"]] == [2, 1]
    assert "wrong" in cli("workflows", "show", "diamond").out
    assert "has no version 9" in cli("workflows", "show", "diamond", "--version", "9", code=3).err
    assert "no workflow 'x'" in cli("workflows", "show", "x", code=3).err


def test_a_known_name_outlives_its_file(cli: Cli) -> None:
    """What is on record can be started again by name when its file is not there."""
    path = cli.write("workflows/diamond.yaml", DIAMOND)
    cli("run", "diamond", "--json")
    path.unlink()
    assert cli("run", "diamond", "--json").json["status"] == "succeeded"


def test_graphs_as_json_and_python(cli: Cli) -> None:
    """A task can start from a compiled graph, in JSON or built by a Python module."""
    graph = {
        "name": "plain",
        "steps": [{"name": "nap", "kind": "wait", "config": {"duration": "1ms"}}],
    }
    cli.write("plain.json", json.dumps(graph))
    assert cli("run", "plain.json", "--json").json["status"] == "succeeded"
    cli.write(
        "built.py",
        "from agent.workflows.graph import Graph\n"
        f"graph = Graph.model_validate({graph!r} | {{'name': 'built'}})\n",
    )
    assert cli("run", "built.py", "--json").json["workflow"] == "built"


def test_detached_tasks_wait_for_an_agent(cli: Cli) -> None:
    """`--detach` only records the task; the next process that runs tasks carries it on."""
    cli.write("diamond.yaml", DIAMOND)
    result = cli("run", "diamond.yaml", "--detach")
    assert "agent up" in result.out
    (task,) = cli("tasks", "--json").json
    assert task["status"] == "running"
    assert cli("tasks", "--status", "succeeded", "--json").json == []
    assert cli("tasks", "--workflow", "diamond", "--limit", "1", "--json").json == [task]
    assert "diamond" in cli("tasks").out


@pytest.mark.parametrize("arguments", [["logs"], ["events"]])
def test_logs_and_events_tell_what_happened(cli: Cli, arguments: list[str]) -> None:
    """What steps wrote and what happened can be read afterwards, whole or in part."""
    cli.write("failing.yaml", FAILING)
    task_id = cli("run", "failing.yaml", "--json", code=1).json["id"]
    if arguments == ["logs"]:
        printed = cli("logs", task_id)
        assert "what went wrong" in printed.out
        assert re.match("bad failed: .*ended with exit code 3: what went wrong", printed.err)
        assert "bad failed: " in cli("logs", task_id, "bad", "--follow").err
        good = cli("logs", task_id, "good")
        assert (good.out, good.err) == ("fine\n", "")
        assert cli("logs", task_id, "bad", "--attempt", "1").err == "", "its last one failed it"
        pieces = cli("logs", task_id, "bad", "--attempt", "2", "--json").json
        assert [piece["text"].strip() for piece in pieces] == ["what went wrong"]
        assert cli("logs", task_id, "nowhere", code=3).err.startswith("agent: ")
        whole = cli("logs", task_id).out.splitlines()
        assert cli("logs", task_id, "--tail", "1").out.splitlines() == whole[-1:]
        assert cli("logs", task_id, "--follow").out.splitlines() == whole, "its task has ended"
        followed = cli("logs", task_id, "--follow", "--tail", "0").out
        assert followed == ""
        timed = cli("logs", task_id, "--timestamps").out.splitlines()
        assert [line.partition("  ")[2] for line in timed] == whole
        return
    found = cli("events", task_id, "--json").json
    types = [event["type"] for event in found["events"]]
    assert types[0] == "task.created"
    assert types[-1] == "task.failed"
    assert [event["seq"] for event in found["events"]] == list(range(1, len(types) + 1))
    first = cli("events", "--from-start", "--limit", "2", "--json").json
    rest = cli("events", "--after", first["cursor"], "--json").json
    whole = cli("events", "--json").json
    assert first["events"] + rest["events"] == whole["events"]
    newest = cli("events", "--limit", "2", "--json").json
    assert newest["events"] == whole["events"][-2:], "the newest, the oldest of them first"
    assert newest["cursor"] == whole["cursor"]
    shown = cli("events", "--limit", "2")
    assert len(shown.out.splitlines()) == 2
    assert "--from-start" in shown.err
    assert "task.failed" in cli("events", task_id).out
    assert cli("events", "--after", "nonsense", code=2).err.startswith("agent: ")


def test_a_file_is_compiled_again_only_when_it_has_changed(cli: Cli) -> None:
    """An unchanged file starts its recorded version; a changed, broken or missing one is noticed."""
    file = cli.write("flow.yaml", "name: flow\nsteps: {one: {wait: 1h}}\n")

    def started() -> int:
        version: int = cli("run", "--detach", "flow.yaml", "--json").json["version"]
        return version

    assert [started(), started(), started()] == [1, 1, 1]
    remembered = Path(cli.environment["XDG_CACHE_HOME"], "agent").glob("compiled-*")
    assert len(list(remembered)) == 1
    file.write_text("name: flow\nsteps: {one: {wait: 2h}}\n", encoding="utf-8")
    assert [started(), started()] == [2, 2]
    file.write_text("name: flow\nsteps: {one: {wait: soon}}\n", encoding="utf-8")
    assert "wait" in cli("run", "--detach", "flow.yaml", code=2).err
    file.unlink()
    assert "no such file" in cli("run", "--detach", "flow.yaml", code=2).err
