"""A task that a chat started reports its end there, and people who are paired later see open questions."""

import pytest

from agent.store.channels import pairings
from agent.store.engine import workflow_versions
from agent.workflows.compile.compiler import compile_text
from tests.support.approvals import asked, gated, token
from tests.support.chat import Chat
from tests.support.chat_server import received
from tests.support.engine import eventually

BOTH = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
_TEXTS = {
    "adds": "name: adds\non:\n  chat: {command: add}\ninputs:\n  n: {type: integer}\nsteps:\n"
    "  nap: {wait: 1ms}\noutput: {total: '{{ inputs.n + 1 }}'}\n",
    "says": "name: says\non:\n  chat: {command: say}\nsteps:\n  say: {message: the answer}\n"
    "output: {more: than that}\n",
    "fails": "name: fails\non:\n  chat: {command: fail}\nsteps:\n  bad:\n    retry: {max_attempts: 1}\n"
    "    python: {call: 'tests.support.step_functions:missing'}\n",
    "waits": "name: waits\non:\n  chat: {command: wait}\nsteps:\n  long: {wait: 1h}\n",
}


def _register(chat: Chat, *names: str) -> None:
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        for name in names:
            found = compile_text(_TEXTS[name].encode(), f"{name}.yaml")
            workflow_versions.register(tx, found.name, found.hash, found.text, None, None, 1)


def _about(chat: Chat, identity: str, words: str) -> list[str]:
    return [
        each.text
        for each in chat.peer.messages
        if each.recipient == identity and words in each.text
    ]


@BOTH
def test_a_success_is_reported_where_it_was_started(chat: Chat) -> None:
    """Its output is shown readably, once, and only to the person who started it."""
    ada, bob = chat.pair(1), chat.pair(2)
    _register(chat, "adds")
    chat.peer.write(ada, "/add n=41")
    shown = received(chat.peer, ada, "succeeded")
    assert shown.text.endswith("succeeded\ntotal: 42")
    chat.peer.write(ada, "/status")
    received(chat.peer, ada, "open questions")
    assert len(_about(chat, ada, "total: 42")) == 1
    assert _about(chat, bob, "total: 42") == []


def test_a_task_that_answered_is_not_reported_again(chat: Chat) -> None:
    """A message to the origin is the report of a success."""
    ada = chat.pair(1)
    _register(chat, "says", "adds")
    chat.peer.write(ada, "/say")
    received(chat.peer, ada, "the answer")
    chat.peer.write(ada, "/add n=1")
    received(chat.peer, ada, "total: 2")
    assert _about(chat, ada, "more: than that") == []


def test_a_failure_names_the_next_command(chat: Chat) -> None:
    """The person who started it sees what to do next."""
    ada = chat.pair(1)
    _register(chat, "fails")
    chat.peer.write(ada, "/fail")
    shown = received(chat.peer, ada, "failed:")
    assert "/why " in shown.text
    assert "/retry " in shown.text


def test_a_canceled_task_is_reported(chat: Chat) -> None:
    """Also when it was cancelled elsewhere."""
    ada = chat.pair(1)
    _register(chat, "waits")
    chat.peer.write(ada, "/wait")
    ((task_id,),) = eventually(lambda: chat.engine.rows("SELECT id FROM tasks"))
    chat.engine.operator.cancel(task_id)
    assert "was canceled" in received(chat.peer, ada, "was canceled").text


def test_who_is_not_paired_any_more_gets_no_report(chat: Chat) -> None:
    """A task outlives the pairing of its starter, and its result stays here."""
    ada, bob = chat.pair(1), chat.pair(2)
    _register(chat, "waits")
    chat.peer.write(ada, "/wait")
    ((task_id,),) = eventually(lambda: chat.engine.rows("SELECT id FROM tasks"))
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        pairings.remove(tx, chat.peer.name, ada)
    chat.engine.operator.cancel(task_id)
    chat.peer.write(bob, "/status")
    received(chat.peer, bob, "open questions")
    assert _about(chat, ada, "was canceled") == []


@BOTH
def test_a_person_paired_later_sees_the_open_questions(chat: Chat) -> None:
    """The pairing is confirmed in the chat, and the questions that the person may answer follow."""
    asked(chat.engine, gated("pay", token()))
    ada = chat.pair(1)
    shown = received(chat.peer, ada, "Pay 12 to Ada?")
    assert set(shown.buttons) == {"Approve", "Deny"}
    assert len(_about(chat, ada, "is paired with the agent")) == 1
    reader = chat.pair(2, "read")
    chat.peer.write(reader, "/status")
    received(chat.peer, reader, "open questions: 1")
    assert _about(chat, reader, "Pay 12") == []


def test_free_text_of_a_stranger_starts_nothing(chat: Chat) -> None:
    """Someone who is not paired gets a code, also where a workflow takes free text."""
    text = "name: takes\non:\n  chat: {text: true}\nsteps:\n  say: {message: hello}\n"
    found = compile_text(text.encode(), "takes.yaml")
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        workflow_versions.register(tx, found.name, found.hash, found.text, None, None, 1)
    stranger = chat.peer.identity(9)
    chat.peer.write(stranger, "do something for me")
    received(chat.peer, stranger, "agent pair")
    assert chat.engine.rows("SELECT id FROM tasks") == []
    assert len(chat.peer.messages) == 1
