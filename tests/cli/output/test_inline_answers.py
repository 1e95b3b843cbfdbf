"""Questions at a real terminal: asked where the task is followed, and never decided by accident."""

import getpass
from collections.abc import Callable, Iterator

import pytest

from tests.support.cli import Cli
from tests.support.free_port import free_port
from tests.support.terminal import Terminal

PAYING = """\
name: paying
inputs:
  amount: {type: integer, default: 12}
steps:
  purpose:
    input: {message: What is it for?, choices: [rent, food]}
  pay:
    depends_on: [purpose]
    approval: {message: "Pay {{ inputs.amount }} for {{ steps.purpose.output.value }}?", editable: [argv]}
    shell: {argv: [echo, "{{ inputs.amount }}"], effect: none}
output: "{{ steps.pay.output.stdout.strip() }}"
"""

GATED = """\
name: gated
inputs:
  text: {type: string, default: short}
steps:
  act:
    approval: {message: Act?}
    shell: {argv: [touch, "{{ inputs.text[:5] }}", "{{ inputs.text | length }}"], stdin: "{{ inputs.text }}"}
"""

TYPED = """\
name: typed
steps:
  ask:
    input: {message: How many?, schema: {type: integer, minimum: 1}}
output: "{{ steps.ask.output.value }}"
"""

Open = Callable[..., Terminal]
APPROVAL = "later or quit? "
INPUT = "/quit): "


@pytest.fixture
def at_terminal(cli: Cli) -> Iterator[Open]:
    """Return a function that begins a command at a terminal; all are ended."""
    opened: list[Terminal] = []

    def begin(*arguments: str) -> Terminal:
        opened.append(Terminal(cli, *arguments))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


@pytest.mark.process
def test_questions_are_asked_one_after_the_other(cli: Cli, at_terminal: Open) -> None:
    """A choice by its number, a wrong answer, then an approval with an edit; the task goes on."""
    cli.write("paying.yaml", PAYING)
    terminal = at_terminal("run", "paying.yaml", "--wait")
    terminal.expect(INPUT)
    assert "What is it for?" in terminal.plain and "2) food" in terminal.plain
    terminal.type("fun")
    terminal.expect("give one of rent, food")
    terminal.expect(INPUT)
    terminal.type("2")
    terminal.expect(APPROVAL)
    assert '"argv": [\n      "echo",\n      12\n    ]' in terminal.plain, "exactly what would run"
    terminal.type("")
    terminal.expect(APPROVAL)
    terminal.type("edit")
    terminal.expect("empty keeps it): ")
    terminal.type('["echo", "7"]')
    terminal.expect("approve with these changes (yes or no)? ")
    assert 'argv: ["echo", 12] → ["echo", "7"]' in terminal.plain
    terminal.type("yes")
    assert terminal.wait() == 0
    assert "approved by" in terminal.plain and "succeeded" in terminal.plain
    (task,) = cli("tasks", "--json").json
    assert cli.task(task["id"])["output"] == "7"
    decided = cli("approvals", "--all", "--json").json
    assert {entry["decision"]["channel"] for entry in decided} == {"terminal"}
    assert {entry["decision"]["by"] for entry in decided} == {getpass.getuser()}


@pytest.mark.process
def test_an_interruption_leaves_the_question_open(cli: Cli, at_terminal: Open) -> None:
    """Ctrl-C says how to answer later; that answer follows the task and asks the next one."""
    cli.write("paying.yaml", PAYING)
    terminal = at_terminal("run", "paying.yaml", "--wait")
    terminal.expect(INPUT)
    terminal.type("\x03", end="")
    assert terminal.wait() == 130
    assert "the question stays open; answer it later:" in terminal.plain
    (question,) = cli("approvals", "--json").json
    assert f"answer {question['id'][-8:]} rent | food" in terminal.plain
    follows = at_terminal("answer", question["id"], "rent", "--wait")
    follows.expect(APPROVAL)
    assert "Pay 12 for rent?" in follows.plain
    follows.type("deny")
    follows.expect("reason (may be empty): ")
    follows.type("not today")
    assert follows.wait() == 1
    assert "not today" in cli.task(question["task"])["steps"][-1]["error"]["message"]


@pytest.mark.process
def test_deferring_and_quitting_leave_it_open(cli: Cli, at_terminal: Open) -> None:
    """The command ends with 4, as without a terminal, and shows the command."""
    cli.write("gated.yaml", GATED)
    terminal = at_terminal("run", "gated.yaml")
    terminal.expect(APPROVAL)
    terminal.type("later soon")
    terminal.expect("soon: ")
    terminal.expect(APPROVAL)
    terminal.type("later 2h")
    assert terminal.wait() == 4
    assert "deferred until" in terminal.plain
    (question,) = cli("approvals", "--json").json
    assert f"approve {question['id'][-8:]}" in terminal.plain
    again = at_terminal("run", "gated.yaml")
    again.expect(APPROVAL)
    assert again.leave() == 4
    assert [entry["status"] for entry in cli("approvals", "--json").json] == ["pending"] * 2


@pytest.mark.process
def test_what_was_not_shown_whole_is_not_approved(cli: Cli, at_terminal: Open) -> None:
    """A long request is cut with a pointer to all of it; `show` prints it, then it can be approved."""
    cli.write("gated.yaml", GATED)
    terminal = at_terminal("run", "gated.yaml", "-i", "text=" + "x" * 20_000)
    terminal.expect("show, later or quit? ")
    assert "more characters are not shown" in terminal.plain
    assert terminal.plain.count("x") < 9000
    terminal.type("approve")
    terminal.expect("the request is not shown whole")
    terminal.expect("show, later or quit? ")
    terminal.type("show")
    terminal.expect(f"deny, {APPROVAL}")
    assert terminal.plain.count("x") >= 20_000
    terminal.type("approve")
    assert terminal.wait() == 0
    assert (cli.directory / "xxxxx").exists()


@pytest.mark.process
def test_a_question_that_is_answered_elsewhere_leaves_the_screen(
    cli: Cli, at_terminal: Open
) -> None:
    """With a running agent: the view continues, and what was typed is forgotten."""
    cli.write("paying.yaml", PAYING)
    with cli.daemon():
        terminal = at_terminal("run", "paying.yaml", "--wait")
        terminal.expect(INPUT)
        terminal.type("ren", end="")
        (question,) = cli("approvals", "--json").json
        cli("answer", question["id"], "food")
        terminal.expect("answered by")
        terminal.expect(APPROVAL)
        assert "Pay 12 for food?" in terminal.plain
        terminal.type("approve")
        assert terminal.wait() == 0


@pytest.mark.process
def test_what_was_typed_before_the_question_is_no_answer(cli: Cli, at_terminal: Open) -> None:
    """An impatient return or a `y` for something else must approve nothing."""
    cli.write(
        "gated.yaml",
        GATED.replace("steps:\n", "steps:\n  first: {wait: 2s}\n").replace(
            "  act:\n", "  act:\n    depends_on: [first]\n"
        ),
    )
    terminal = at_terminal("run", "gated.yaml")
    terminal.expect("first")
    terminal.type("yes")
    terminal.expect(APPROVAL)
    assert cli("approvals", "--json").json[0]["status"] == "pending"
    terminal.type("deny")
    terminal.expect("reason")
    terminal.type("")
    assert terminal.wait() == 1


@pytest.mark.process
def test_an_answer_by_schema_over_http(cli: Cli, at_terminal: Open) -> None:
    """With --server: the token's scopes decide who may answer; a wrong value is asked for again."""
    cli.write("typed.yaml", TYPED)
    port = free_port()
    cli.environment["AGENT_SERVER__PORT"] = str(port)
    with cli.daemon():
        address = f"http://127.0.0.1:{port}"
        terminal = at_terminal("--server", address, "run", "typed.yaml", "--wait")
        terminal.expect(INPUT)
        assert '"minimum": 1' in terminal.plain
        terminal.type("0")
        terminal.expect("is less than the minimum")
        terminal.expect(INPUT)
        terminal.type("3")
        assert terminal.wait() == 0
    (question,) = cli("approvals", "--all", "--json").json
    assert question["decision"]["channel"] == "api"
    assert question["decision"]["value"] == 3


UNKNOWN_STEPS = """\
async def act(ctx):
    def send():
        with open("sent", "a") as sent:
            sent.write("x")
        if len(open("sent").read()) < 2:
            raise OSError("the line is dead")
        return "sent"
    return await ctx.call("send", {"to": "ada"}, send)
"""


@pytest.mark.process
def test_an_unknown_effect_takes_whole_words(cli: Cli, at_terminal: Open) -> None:
    """`done`, `retry` or `fail`: one letter decides nothing about an effect."""
    cli.write("unknown_steps.py", UNKNOWN_STEPS)
    cli.write(
        "unknown.yaml", "name: unknown\nsteps: {act: {python: {call: 'unknown_steps:act'}}}\n"
    )
    # The effect may be under way until then; no question is asked before.
    cli.environment |= {
        "AGENT_STEPS__CALL_SECONDS": "0.1",
        "AGENT_STEPS__SEND_WINDOW_SECONDS": "0.1",
    }
    terminal = at_terminal("run", "unknown.yaml")
    terminal.expect("done, retry, fail, later or quit? ")
    assert '"to": "ada"' in terminal.plain
    terminal.type("d")
    terminal.expect("'d' is none of these")
    assert (cli.directory / "sent").read_text() == "x"
    terminal.type("retry")
    assert terminal.wait() == 0
    assert (cli.directory / "sent").read_text() == "xx"


def test_without_a_terminal_nothing_is_asked(cli: Cli, at_terminal: Open) -> None:
    """Piped, with --json and with --no-input the command ends with 4 and names the command."""
    cli.write("gated.yaml", GATED)
    piped = cli("run", "gated.yaml", "--wait", code=4, given="approve\n")
    assert "approve" in piped.out and "quit?" not in piped.out
    assert (
        cli("run", "gated.yaml", "--wait", "--json", code=4, given="y\n").json["status"]
        == "running"
    )
    terminal = at_terminal("run", "gated.yaml", "--wait", "--no-input")
    assert terminal.wait() == 4
    assert "quit?" not in terminal.plain
    (first, *_) = cli("approvals", "--json").json
    task = cli("approve", first["id"], "--wait", "--json").json
    assert (task["id"], task["status"]) == (first["task"], "succeeded")


@pytest.mark.process
def test_who_may_not_answer_is_not_asked(cli: Cli, at_terminal: Open) -> None:
    """The question's own list decides, as on every surface."""
    cli.write("gated.yaml", GATED.replace("message: Act?", "message: Act?, who: ['telegram:7']"))
    terminal = at_terminal("run", "gated.yaml")
    assert terminal.wait() == 4
    assert "quit?" not in terminal.plain
