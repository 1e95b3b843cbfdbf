"""The `echo` provider: scripts in messages and in system prompts."""

import asyncio
import json
from typing import Any

import pytest

from agent.models.echo import EchoConnector
from agent.models.errors import ModelError
from agent.models.protocol import Message, ModelRequest, Reply
from agent.models.registry import ModelRegistry

RULES = {
    "^remember (.+)": [
        {"tool_uses": [{"name": "keep", "arguments": {"text": "{1}"}}]},
        "kept: {1}, of {text}; {unknown}",
    ],
    "list": [{"tool_uses": [{"name": "list"}]}, "there are\n{tool:name,status}"],
    "raw": ["{tool}"],
    "x?": ["anything else"],
}


def block(script: Any) -> str:
    """Return a text that ends with a script."""
    return f"words\n```echo\n{json.dumps(script)}\n```"


def ask(*messages: Message, system: str | None = None) -> Reply:
    """Ask for the next answer."""
    connector = EchoConnector(ModelRegistry(default="echo").get("echo"))
    request = ModelRequest(messages, 1000, system=system)
    return asyncio.run(connector.complete(request, 10))


def test_a_script_in_a_message_counts_answers_after_it() -> None:
    """What was said before in the conversation does not move the script."""
    before = (Message("user", "one"), Message("assistant", "1"))
    scripted = Message("user", block(["first", "second"]))
    assert ask(*before, scripted).text == "first"
    assert ask(*before, scripted, Message("assistant", "first")).text == "second"
    assert ask(scripted, *[Message("assistant", "x")] * 5).text == "second"


def test_a_script_in_the_system_prompt_answers_by_what_was_said() -> None:
    """The first pattern that occurs decides; its groups fill the arguments and the answer."""
    system, said = block(RULES), Message("user", "Remember the milk")
    first = ask(Message("user", "list"), Message("assistant", "x"), said, system=system)
    (use,) = first.tool_uses
    assert (use.name, use.arguments) == ("keep", {"text": "the milk"})
    second = ask(said, Message("assistant", "", first.tool_uses), system=system)
    assert second.text == "kept: the milk, of Remember the milk; {unknown}"
    assert ask(Message("user", "something"), system=system).text == "anything else"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            '{"tasks": [{"name": "a", "status": "done"}, {"name": "b"}], "more": 1}',
            "- a, done\n- b",
        ),
        ('[{"name": "a"}]', "- a"),
        ('{"name": "a"}', "a"),
        ("[]", "(nothing)"),
        ("not JSON", "not JSON"),
    ],
)
def test_what_a_tool_answered_is_filled_in(answer: str, shown: str) -> None:
    """Members of its objects are listed; the marks of foreign text are left out."""
    tool = Message("tool", f"<untrusted>\n{answer}\n</untrusted>", tool_use_id="u")
    messages = (Message("user", "list"), Message("assistant", ""), tool)
    assert ask(*messages, system=block(RULES)).text == f"there are\n{shown}"
    raw = (Message("user", "raw"), Message("assistant", ""), tool)
    assert ask(*raw, system=block(RULES)).text == answer


@pytest.mark.parametrize("script", [["a list"], {"(": ["x"]}, {"x?": "no list"}, "text"])
def test_a_bad_script_is_named(script: Any) -> None:
    """The step fails, and says that the block is the problem."""
    with pytest.raises(ModelError) as problem:
        ask(Message("user", "x"), system=block(script))
    assert "echo block" in problem.value.message
