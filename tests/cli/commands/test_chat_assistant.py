"""The assistant at `agent chat`: a sentence is answered, an approval is asked, a kill loses nothing."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.assistant import assistant_text, configure, repeat, said
from tests.support.cli import Cli
from tests.support.model_servers import Provider, Reply, Say, Stall, providing
from tests.support.sample_workflows import QUICK
from tests.support.terminal import Terminal


@pytest.fixture
def model(cli: Cli) -> Iterator[Provider]:
    """Return the model of the assistant, which repeats what it hears."""
    with providing(Say()) as server:
        server.decide = repeat
        configure(cli, server)
        cli("init")
        yield server


@contextmanager
def chatting(cli: Cli) -> Iterator[Terminal]:
    """Open a prompt of `agent chat`, once a daemon has recorded the workflow that takes text."""
    cli.wait_for(lambda: cli("workflows", "--json").json)
    terminal = Terminal(cli, "chat")
    try:
        terminal.expect("agent>")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.process
def test_a_conversation_goes_on_after_a_kill(cli: Cli, model: Provider) -> None:
    """What was typed before the agent was killed is answered by the next one, with what came before."""
    stalls = ["and who am I?"]

    def decide(request: dict[str, Any]) -> Reply:
        if said(request)[-1] in stalls:
            stalls.remove(said(request)[-1])
            return Stall()
        return repeat(request)

    model.decide = decide
    with ExitStack() as opened:
        daemon = opened.enter_context(cli.daemon())
        terminal = opened.enter_context(chatting(cli))
        terminal.type("I am Ada")
        terminal.expect("I heard: I am Ada")
        assert "started assistant" not in terminal.text
        terminal.type("and who am I?")
        cli.wait_for(lambda: len(model.requests) == 2)
        daemon.kill()
        opened.enter_context(cli.daemon())
        terminal.expect("I heard: and who am I?")
        assert said(model.requests[-1]) == ["I am Ada", "I heard: I am Ada", "and who am I?"]
        assert terminal.leave() == 0
    (kept,) = cli("conversations", "--json").json
    assert kept["id"].startswith("terminal:") and kept["entries"] == 4


@pytest.mark.process
def test_the_scripted_demo(cli: Cli) -> None:
    """Without a model it remembers, recalls, lists tasks, and asks before it starts something."""
    cli.environment["AGENT_SERVER__PORT"] = "0"
    cli.write("workflows/assistant.yaml", assistant_text("echo"))
    cli.write("workflows/quick.yaml", QUICK)
    cli("init")
    with cli.daemon(), chatting(cli) as terminal:
        terminal.type("Hello")
        terminal.expect("I play a script")
        terminal.type("remember that my train leaves at 8:15")
        terminal.expect("I will remember: my train leaves at 8:15")
        terminal.type("What do you remember about the train?")
        terminal.expect("my train leaves at 8:15")
        terminal.type("what is running?")
        terminal.expect("assistant, running")
        terminal.type("start quick")
        terminal.expect("/approve")
        (question,) = cli("approvals", "--json").json
        assert question["request"]["arguments"] == {"workflow": "quick"}
        terminal.type(f"/approve {question['id'][-8:]}")
        terminal.expect("It says: quick, ")
        terminal.type("tell me a joke")
        terminal.expect("this is not in it: tell me a joke")
        cli.wait_for(
            lambda: [
                task
                for task in cli("tasks", "--json").json
                if (task["workflow"], task["status"]) == ("quick", "succeeded")
            ]
        )
        assert terminal.leave() == 0
        # From a pipe it waits for the answer.
        assert "I play a script" in cli("chat", given="hello\n").out
