"""Approvals on the command line: what waits, how it is answered, and what is refused."""

import getpass
import re
from typing import Any

import pytest

from tests.support.cli import Cli

PAYING = """\
name: paying
inputs:
  amount: {type: integer, default: 12}
steps:
  purpose:
    input: {message: What is it for?, choices: [rent, food]}
  pay:
    depends_on: [purpose]
    approval: {message: "Pay {{ inputs.amount }} for {{ steps.purpose.output.value }}?", editable: [argv], expires: 2d}
    shell: {argv: [echo, "{{ inputs.amount }}"], effect: none}
output: "{{ steps.pay.output.stdout.strip() }}"
"""


@pytest.fixture
def waiting(cli: Cli) -> dict[str, Any]:
    """Return a task that waits for a person, in a directory without a running agent."""
    cli.write("paying.yaml", PAYING)
    found: dict[str, Any] = cli("run", "paying.yaml", "--wait", "--json", code=4).json
    return found


def _pending(cli: Cli) -> dict[str, Any]:
    (found,) = cli("approvals", "--json").json
    return dict(found)


@pytest.mark.process
def test_questions_are_answered_one_after_the_other(cli: Cli, waiting: dict[str, Any]) -> None:
    """`run --wait` ends with 4; answers let the task go on; the edited request is what runs."""
    assert waiting["waiting_on"][0]["message"] == "What is it for?"
    first = _pending(cli)
    assert (first["kind"], first["task"], first["step"]) == ("input", waiting["id"], "purpose")
    assert "What is it for?" in cli("approvals").out
    short = first["id"][-8:]
    shown = cli("approvals", short).out
    assert f"answer {short} rent | food\n" in shown
    assert "give one of rent, food" in cli("answer", short, "fun", code=2).err
    assert "answer or deny it" in cli("approve", short, code=2).err
    assert "answered" in cli("answer", short, "food", "--comment", "hungry").out
    assert f"answer {short}" not in cli("show", waiting["id"]).out
    with cli.daemon():
        second = cli.wait_for(lambda: cli("approvals", "--json").json)[0]
        assert second["message"] == "Pay 12 for food?"
        details = cli("approvals", second["id"]).out
        assert "\neditable: argv\n" in details
        assert re.search(r"\nexpires: \d{4}-\d\d-\d\d \d\d:\d\d, in 47 h \d\d min\n", details)
        assert second["request"]["config"]["argv"] == ["echo", 12]
        approval = second["id"]
        cli("approve", approval, "--set", "effect=1", code=2)
        done = cli("approve", approval, "--set", 'argv=["echo", "7"]', "--json").json
        assert done["status"] == "approved"
        assert done["decision"]["by"] == getpass.getuser()
        assert done["decision"]["channel"] == "terminal"
        task = cli.wait_for(
            lambda: (found := cli.task(waiting["id"]))["status"] == "succeeded" and found
        )
        assert task["output"] == "7"
        late = cli("deny", approval, "--reason", "no", code=3)
        assert f"approved already by {getpass.getuser()}" in late.err
    assert cli("approvals").out.strip() == "no open questions"
    assert [found["status"] for found in cli("approvals", "--all", "--json").json] == [
        "approved",
        "answered",
    ]


def test_a_no_reaches_the_workflow(cli: Cli, waiting: dict[str, Any]) -> None:
    """A denied step fails with the reason; without an agent, the answer warns."""
    approval = _pending(cli)["id"]
    denied = cli("deny", approval, "--reason", "not today")
    assert "denied" in denied.out
    task = cli.task(waiting["id"])
    assert task["status"] == "failed"
    assert task["error"]["message"].endswith(": not today")
    assert cli("deny", approval, code=3, given="").err.startswith("agent: it was denied already")


def test_unknown_ids_and_malformed_edits_are_refused(cli: Cli, waiting: dict[str, Any]) -> None:
    """Each gets a message and an exit code."""
    assert waiting["status"] == "running"
    assert "there is no approval" in cli("approve", "ffffffff", code=3).err
    assert "at least three characters" in cli("approve", "ff", code=3).err
    approval = _pending(cli)["id"]
    assert "key=value" in cli("approve", approval, "--set", "x", code=2).err
    assert "given twice" in cli("approve", approval, "--set", "x=1", "--set", "x=2", code=2).err
    document = cli("deny", "ffffffff", "--json", code=3).json
    assert document["error"]["code"] == "refused"
    assert cli("defer", approval, "4h", "--json").json["remind_at"] is not None
    cli("defer", approval, "soon", code=2)
    hints = cli("watch", waiting["id"], code=4).out
    assert f"answer {approval[-8:]} VALUE" in hints


def test_a_cancelled_task_asks_nothing(cli: Cli, waiting: dict[str, Any]) -> None:
    """Neither `watch` nor `show` presents the question of a task that has ended."""
    cli("cancel", waiting["id"])
    watched, shown = cli("watch", waiting["id"], code=1), cli("show", waiting["id"])
    for text in (watched.out + watched.err, shown.out):
        assert "asks" not in text
        assert "until the task was canceled" in text
