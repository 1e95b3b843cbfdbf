"""The assistant of the examples in Telegram and Slack: it goes on with its memory, whatever is killed."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.store.db.database import Database
from agent.tasks.read_models import conversations
from agent.tool_services.engine_control import EngineControl
from agent.tool_services.memories import Memories
from agent.tool_services.tool_memory import ToolMemory
from tests.support.assistant import assistant_text, configure, repeat, said
from tests.support.chat import Chat
from tests.support.chat_server import Failure, received, shown_to
from tests.support.cli import Cli
from tests.support.engine import eventually
from tests.support.model_servers import Provider, Reply, Say, Stall, providing
from tests.support.model_steps import catalog
from tests.support.recorded_triggers import record_workflow
from tests.support.sample_workflows import QUICK
from tests.support.telegram_server import BotServer


class SlowBotServer(BotServer):
    """Telegram, where the delivery of some messages takes until the test goes on."""

    held = ""
    """Messages with these words wait."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.has_arrived = threading.Event()
        self.may_go_on = threading.Event()

    def answer(self, method: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if method == "sendMessage" and self.held and self.held in given["text"]:
            self.has_arrived.set()
            self.may_go_on.wait(60)
        return super().answer(method, given)


@pytest.fixture
def telegram(tmp_path: Path) -> Iterator[SlowBotServer]:
    """Return Telegram on loopback."""
    server = SlowBotServer(tmp_path)
    yield server
    server.may_go_on.set()
    server.close()


def _count(telegram: BotServer, words: str) -> int:
    return sum(words in message.text for message in telegram.messages)


def _let_time_pass(cli: Cli) -> None:
    """Let calls that were under way count as over, while no agent runs."""
    database = Database(f"sqlite:///{next(cli.directory.rglob('agent.db'))}")
    with database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE tool_calls SET expires_at = 1 WHERE expires_at > 1")
        tx.execute("UPDATE steps SET wake_at = 1 WHERE wake_at > 1 AND status = 'waiting'")


def _calls(cli: Cli, task: str, step: str) -> list[tuple[str, str]]:
    calls = cli("show", task, step, "--json").json["calls"]
    return [(call["action"].partition("#")[0], call["status"]) for call in calls]


@pytest.mark.process
def test_a_killed_daemon_goes_on_with_the_conversation(cli: Cli, telegram: SlowBotServer) -> None:
    """Killed while the model thinks, before its answer is sent, and while it is sent.

    No answer is lost, the model's next request has every earlier turn once, and the one message
    that arrived twice has a call of unknown result on record.
    """
    stalls = {"what is my name?"}

    def decide(request: dict[str, Any]) -> Reply:
        message = said(request)[-1]
        if message in stalls:
            stalls.remove(message)
            return Stall()
        return repeat(request)

    with providing(Say()) as model:
        model.decide = decide
        configure(cli, model)
        settings = telegram.settings().telegram
        cli.environment |= {
            "AGENT_CHANNELS__TELEGRAM__TOKEN": settings.token,
            "AGENT_CHANNELS__TELEGRAM__API_URL": settings.api_url,
            "AGENT_CHANNELS__TELEGRAM__POLL_SECONDS": "2",
        }
        cli("init")
        ada = telegram.identity(1)
        with cli.daemon() as daemon:
            telegram.write(ada, "let me in")
            code = re.search(r"agent pair (\S+)", received(telegram, ada, "agent pair").text)
            assert code is not None
            assert cli("tasks", "--json").json == [] and model.requests == []
            cli("pair", code[1])
            telegram.write(ada, "I am Ada")
            received(telegram, ada, "I heard: I am Ada")
            assert _count(telegram, "started assistant") == 0
            telegram.write(ada, "what is my name?")
            cli.wait_for(lambda: len(model.requests) == 2)
            daemon.kill()
        with cli.daemon() as daemon:
            received(telegram, ada, "I heard: what is my name?")
            first, again = model.requests[1:3]
            assert (
                said(first) == said(again) == ["I am Ada", "I heard: I am Ada", "what is my name?"]
            )
            # Killed between the answer and its message: Telegram asks for a pause.
            telegram.fail("send", Failure(429, "Too Many Requests", retry_after=2))
            telegram.write(ada, "and my town?")
            cli.wait_for(lambda: telegram.called("sendMessage")[-1]["text"].endswith("town?"))
            cli.wait_for(lambda: len(_entries(cli)) == 6)
            daemon.kill()
        telegram.held = "my street"
        with cli.daemon() as daemon:
            received(telegram, ada, "I heard: and my town?")
            telegram.write(ada, "and my street?")
            assert telegram.has_arrived.wait(60)
            daemon.kill()
        telegram.may_go_on.set()
        _let_time_pass(cli)
        with cli.daemon():
            eventually(lambda: _count(telegram, "I heard: and my street?") == 2)
            telegram.write(ada, "thanks")
            received(telegram, ada, "I heard: thanks")
            cli.wait_for(lambda: not cli("tasks", "--activity", "running", "--json").json)
        messages = ["I am Ada", "what is my name?", "and my town?", "and my street?", "thanks"]
        every = [text for message in messages for text in (message, f"I heard: {message}")]
        assert said(model.requests[-1]) == every[:-1]
        entries = _entries(cli)
        assert [entry["text"] for entry in entries] == every
        assert [entry["number"] for entry in entries] == list(range(1, 11))
        sent = [_count(telegram, f"I heard: {message}") for message in messages]
        assert sent == [1, 1, 1, 2, 1]
        street = next(entry["task"] for entry in entries if entry["text"] == "and my street?")
        assert _calls(cli, street, "reply") == [
            ("message.telegram", "unknown"),
            ("message.telegram", "succeeded"),
        ]
        cli("doctor", "--deep")


def _entries(cli: Cli) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = cli("conversations", "show", "telegram:1001", "--json").json[
        "entries"
    ]
    return shown


@pytest.fixture
def model(chat: Chat) -> Iterator[Provider]:
    """Return the model behind the assistant of a chat, which repeats what it hears."""
    with providing(Say()) as server:
        server.decide = repeat
        database, services = chat.engine.database, chat.engine.worker.services
        services.models = catalog(server)
        services.memory = ToolMemory(Memories(database, database.clock))
        services.engine = EngineControl(database, database.clock, 1000)
        record_workflow(database, assistant_text("priced"))
        yield server


def test_every_chat_has_a_conversation_of_its_own(chat: Chat, model: Provider) -> None:
    """What one person said is not part of another's; free text of strangers starts nothing."""
    ada = chat.pair(1)
    chat.peer.write(ada, "I am Ada")
    received(chat.peer, ada, "I heard: I am Ada")
    chat.peer.write(ada, "hello again")
    received(chat.peer, ada, "I heard: hello again")
    assert said(model.requests[-1])[:2] == ["I am Ada", "I heard: I am Ada"]
    bob = chat.pair(2)
    chat.peer.write(bob, "who am I?")
    received(chat.peer, bob, "I heard: who am I?")
    assert said(model.requests[-1]) == ["who am I?"]
    stranger = chat.peer.identity(3)
    count = len(model.requests)
    chat.code(stranger)
    assert len(model.requests) == count
    with chat.engine.database.connect("reader") as connection:
        listed = conversations.list_conversations(connection, 10)
    assert {entry["id"] for entry in listed} == {
        f"{chat.peer.name}:{ada}",
        f"{chat.peer.name}:{bob}",
    }


def test_messages_in_a_row_are_answered_in_order(chat: Chat, model: Provider) -> None:
    """The second answer knows the first, although both messages came before it."""
    model.gate = threading.Event()
    ada = chat.pair(1)
    chat.peer.write(ada, "one")
    chat.peer.write(ada, "two")
    eventually(lambda: len(chat.engine.rows("SELECT id FROM tasks")) == 2)
    model.gate.set()
    received(chat.peer, ada, "I heard: two")
    assert said(model.requests[-1]) == ["one", "I heard: one", "two"]


def test_a_failed_answer_is_reported(chat: Chat, model: Provider) -> None:
    """The person reads why; the next message is answered as if nothing had been said."""
    model.decide = lambda _: Say("no", stop="length")
    ada = chat.pair(1)
    chat.peer.write(ada, "one")
    received(chat.peer, ada, "failed: the answer was cut")
    model.decide = repeat
    chat.peer.write(ada, "two")
    received(chat.peer, ada, "I heard: two")
    assert said(model.requests[-1]) == ["two"]


def test_the_budget_of_a_day_is_reported(chat: Chat, model: Provider) -> None:
    """An answer that the day's budget does not allow fails, and the person reads it."""
    chat.engine.worker.services.models = catalog(model, daily_tokens=10)
    ada = chat.pair(1)
    chat.peer.write(ada, "one")
    received(chat.peer, ada, "failed: the day's budget")
    assert model.requests == []


def test_a_start_asks_the_person_first(chat: Chat, model: Provider) -> None:
    """The approval comes to the chat; denied or approved, the model knows what became of it."""
    record_workflow(chat.engine.database, QUICK)

    def decide(request: dict[str, Any]) -> Say:
        if said(request)[-1] == "start it":
            return Say("", tools=[("u", "engine_start", {"workflow": "quick"})])
        return Say(f"The engine said {said(request)[-1]}")

    model.decide = decide
    ada = chat.pair(1)
    chat.peer.write(ada, "start it")
    question = shown_to(chat.peer, ada, lambda each: "Approve" in each.buttons)
    assert "engine_start" in question.text and "quick" in question.text
    assert chat.engine.rows("SELECT id FROM tasks WHERE workflow_name = 'quick'") == []
    chat.peer.press(ada, question.buttons["Approve"])
    received(chat.peer, ada, '"started": true')
    ((quick,),) = chat.engine.rows("SELECT id FROM tasks WHERE workflow_name = 'quick'")
    chat.engine.wait(quick, "succeeded")
