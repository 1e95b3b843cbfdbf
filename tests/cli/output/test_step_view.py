"""`agent show TASK STEP`: each attempt, whatever the kind of the step."""

import copy
import re
import shlex

import pytest

from agent.cli.output import step_view
from agent.server.examples.steps import STEP_INSPECTION
from tests.support.cli import Cli

WORKFLOW = """
name: inspected
inputs: {who: {type: string, default: world}}
steps:
  loud:
    retry: {max_attempts: 2, delay: 10ms}
    python: {call: "loud_steps:speak", with: {text: "{{ inputs.who }} {{ today | length }}"}}
  big: {depends_on: [loud], shell: {script: "yes x | head -c 9000", effect: none}}
  items: {foreach: [1, 2], python: {call: "json:dumps", with: {obj: "{{ item }}"}}}
  child: {workflow: {name: quiet}}
"""
LONG = """
name: long
steps:
  items: {foreach: [1, 2], python: {call: "loud_steps:count", with: {lines: "{{ item * 30 }}"}}}
"""
STEPS = """
def speak(text, ctx):
    print("hello", text)
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return text


def count(lines):
    for line in range(lines):
        print("line", line)
"""
QUIET = "name: quiet\nsteps: {rest: {wait: 1ms}}\n"


def test_each_attempt_is_shown(cli: Cli) -> None:
    """Configuration, log, traceback and error of one attempt; output of the other; large values cut."""
    cli.write("loud_steps.py", STEPS)
    cli.write("inspected.yaml", WORKFLOW)
    (cli.directory / "workflows").mkdir(exist_ok=True)
    (cli.directory / "workflows" / "quiet.yaml").write_text(QUIET)
    task = cli("run", "inspected.yaml", "--wait", "--json").json["id"]
    shown = cli("show", task, "loud").out
    assert "attempt 1 of 2: failed" in shown and "attempt 2 of 2: succeeded" in shown
    assert 'with: {"text": "world 10"}' in shown and "hello world 10" in shown
    assert "in speak" in shown and "containment" not in shown
    assert "error (exception): ValueError: not yet" in shown
    assert "output: world 10" in shown
    assert "attempt 1" not in cli("show", task, "loud", "--attempt", "2").out
    cli("show", task, "loud", "--attempt", "3", code=3)
    big = cli("show", task, "big").out
    assert "--output FILE" in big and len(big) < 6000
    assert len(cli("show", task, "big", "--json").json["output"]["stdout"]) == 9000
    group = cli("show", task, "items").out
    assert "items[0]" in group and "items[1]" in group
    assert "item: 2" in cli("show", task, "items[1]").out
    child = cli("show", task, "--json").json["children"][0]
    shown = cli("show", task, "child").out
    assert "waits for a child task of quiet" in shown
    assert f"child task of quiet, succeeded: agent show {child[-8:]}" in shown
    assert "child task" not in cli("show", task, "loud").out
    cli("show", task, "items[9]", code=3)


def test_a_long_log_is_cut_and_the_command_for_the_rest_works(cli: Cli) -> None:
    """The command that is shown prints the whole log; an item is one word of a shell."""
    cli.write("loud_steps.py", STEPS)
    cli.write("long.yaml", LONG)
    task = cli("run", "long.yaml", "--wait", "--json").json["id"]
    shown = cli("show", task, "items[1]").out
    assert "line 59" in shown and "line 5\n" not in shown
    hint = re.search(r"earlier lines: agent (.*)", shown)
    assert hint is not None
    whole = cli(*shlex.split(hint[1])).out
    assert whole.count("line ") == 60


def test_waits_and_questions_are_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    """First the attempt waited until the effect could no longer run, then it asked; in whole sentences."""
    document = copy.deepcopy(STEP_INSPECTION)
    [attempt] = document["attempts"]
    question = (
        "`POST https://bank.example/payments` of step pay started; " + "it was cut off. " * 10
    )
    attempt["waits"] = [
        {
            "on": {"timer": 1_790_000_000_000_000, "in_doubt": "ask"},
            "since": "2026-11-18T19:56:37.923Z",
            "until": "2026-11-18T19:57:47.000Z",
            "result": None,
        }
    ]
    attempt["approvals"] = [
        {
            "message": f"{question}Did it happen?",
            "asked_at": "2026-11-18T19:57:47.100Z",
            "decided_at": None,
            "status": "pending",
            "by": None,
            "edits": None,
        }
    ]
    step_view.print_step(document)
    shown = capsys.readouterr().out
    assert 0 < shown.index("its effect may still be running") < shown.index("asked: ")
    assert "Did it happen? (pending)" in shown
