"""`agent chat`: commands from a pipe, and questions as they come at a real terminal."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.cli import Cli
from tests.support.terminal import Terminal

ASKING = """\
name: asking
steps:
  pay: {approval: {message: "Pay 12 to Ada?"}}
"""


@pytest.fixture
def open_terminal(cli: Cli) -> Iterator[Callable[[], Terminal]]:
    """Return a function that begins a chat; all are ended."""
    opened: list[Terminal] = []

    def begin() -> Terminal:
        opened.append(Terminal(cli, "chat"))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def test_commands_from_a_pipe(cli: Cli) -> None:
    """Each line is a command; its answer is printed."""
    cli("db", "upgrade")
    done = cli("chat", given="/status\n\nhello\n/frobnicate\n/quit\n/status\n")
    assert done.out.count("tasks: none yet") == 1
    assert "commands begin with a slash" in done.out
    assert "there is no command /frobnicate" in done.out
    assert "no agent is running" in done.err


def test_commands_leave_a_line_in_the_audit_log(cli: Cli) -> None:
    """As those of every other chat, and of the command line."""
    cli("db", "upgrade")
    cli("chat", given="/status\n/cancel 0199d2c4\n")
    (path,) = cli.directory.rglob("audit.jsonl")
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line["who"].startswith("terminal:")
    assert (line["what"], line["subject"]) == ("cancel", "0199d2c4")


def test_control_characters_are_escaped(cli: Cli) -> None:
    """Questions contain text of mail and models: none of it moves the cursor or breaks a line."""
    asking = r"name: asking" + "\n" + r'steps: {ask: {approval: {message: "a\e[2J\u202Eb?"}}}'
    cli.write("asking.yaml", asking + "\n")
    cli("run", "asking.yaml", code=4)
    done = cli("chat", given="/approvals\n")
    assert r"a\x1b[2J\u202eb?" in done.out
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


@pytest.mark.process
def test_a_question_shows_up_and_is_answered(
    cli: Cli, open_terminal: Callable[[], Terminal]
) -> None:
    """What is asked appears above the prompt; an answer typed there lets the task go on."""
    cli("init")
    cli.write("workflows/asking.yaml", ASKING)
    with cli.daemon():
        terminal = open_terminal()
        terminal.expect("agent>")
        task = cli("run", "asking", "--detach", "--json").json["id"]
        terminal.expect("Pay 12 to Ada?")
        terminal.expect("/approve ")
        approval = cli("approvals", "--json").json[0]["id"]
        terminal.type(f"/approve {approval[-8:]} with pleasure")
        terminal.expect("approved: step pay")
        terminal.expect("✓ approved by")
        cli.wait_for(lambda: cli.task(task)["status"] == "succeeded")
        assert terminal.leave() == 0
