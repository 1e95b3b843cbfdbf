"""The `message` kind over every chat: whom it reaches, what its output says, and how it fails."""

from typing import Any

import pytest

from agent.store.engine import workflow_versions
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph
from tests.support.chat import Chat
from tests.support.chat_server import Failure, received
from tests.support.engine import eventually

BOTH = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)


def _sending(keys: str, *, more: str = "", on: str = "") -> Graph:
    """Return a workflow with one step that sends a message."""
    text = f"name: sends\n{on}steps:\n  say:\n    message: {keys}\n{more}"
    return compile_text(text.encode(), "sends.yaml")


def _register(chat: Chat, graph: Graph) -> None:
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        workflow_versions.register(tx, graph.name, graph.hash, graph.text, None, None, 1)


def _task_of(chat: Chat, workflow: str) -> str:
    rows = eventually(
        lambda: chat.engine.rows("SELECT id FROM tasks WHERE workflow_name = :name", name=workflow)
    )
    return str(rows[0][0])


def _deliveries(chat: Chat, task_id: str) -> list[dict[str, Any]]:
    return list(chat.engine.steps(task_id)["say"]["output"]["deliveries"])


@BOTH
def test_a_task_started_in_a_chat_answers_there(chat: Chat) -> None:
    """Without `to` the message goes to the origin; the output has the channel's message id."""
    ada = chat.pair(1)
    on = "on:\n  chat: {text: true}\n"
    _register(
        chat, _sending("'You wrote **{{ trigger.text }}**, {{ trigger.conversation }}'", on=on)
    )
    chat.peer.write(ada, "good morning")
    shown = received(chat.peer, ada, "You wrote good morning")
    task_id = _task_of(chat, "sends")
    chat.engine.wait(task_id, "succeeded")
    assert f"{chat.peer.name}:{ada}" in shown.text
    (delivery,) = _deliveries(chat, task_id)
    assert (delivery["channel"], delivery["recipient"]) == (chat.peer.name, ada)
    assert delivery["message_id"] == shown.reference
    document = chat.engine.document(task_id)
    assert document["chat_origin"] == {"channel": chat.peer.name, "recipient": ada, "thread": None}


@BOTH
def test_operator_reaches_who_may_operate_and_one_is_enough(chat: Chat) -> None:
    """`operator` is every paired account with that scope; one that refuses fails nothing."""
    ada, bob, eve = chat.pair(1), chat.pair(2), chat.pair(3, "approve")
    chat.peer.messages.clear()
    chat.peer.fail("send", Failure(403, "channel_not_found"))
    task = chat.engine.run(_sending("{to: operator, text: done}"), "succeeded")
    deliveries = _deliveries(chat, task["id"])
    assert [(each["recipient"], each["message_id"] is None) for each in deliveries] == [
        (ada, True),
        (bob, False),
    ]
    assert "error" in deliveries[0]
    assert eve not in {each.recipient for each in chat.peer.messages}


def test_operator_without_anyone_fails_with_the_remedy(chat: Chat) -> None:
    """A message that reaches no one is a failed step, which says what to do."""
    task = chat.engine.run(_sending("{to: operator, text: hello}"), "failed")
    assert task["error"]["code"] == "no_recipient"
    assert "agent pair CODE" in task["error"]["message"]
    assert "[notify]" in task["error"]["message"]


def test_a_recipient_that_refuses_fails_the_step_and_the_others_have_it(chat: Chat) -> None:
    """Of a list everyone must get it; the error names who did not, and who did."""
    ada, bob = chat.peer.identity(1), chat.peer.identity(2)
    chat.peer.fail("send", Failure(403, "channel_not_found"))
    to = f"['{chat.peer.name}:{ada}', '{chat.peer.name}:{bob}']"
    task = chat.engine.run(_sending(f"{{to: {to}, text: hello}}"), "failed")
    assert task["error"]["code"] == "refused"
    assert f"{chat.peer.name}:{ada}: " in task["error"]["message"]
    assert f"delivered to {chat.peer.name}:{bob}" in task["error"]["message"]
    assert [each.recipient for each in chat.peer.messages] == [bob]


def test_no_origin_is_a_failure_that_says_so(chat: Chat) -> None:
    """`to: origin` in a task that no chat started names the alternatives."""
    task = chat.engine.run(_sending("{to: origin, text: hello}"), "failed")
    assert task["error"]["code"] == "no_origin"
    assert "operator" in task["error"]["message"]
