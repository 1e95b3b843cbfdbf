"""Conversations: appended once with the answer, loaded once, answered in the order of the messages."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.approvals import answering
from agent.approvals.permission import terminal_user
from agent.core.chat_origin import ChatOrigin
from agent.core.waits import Timer
from agent.steps.types.conversation import Exchange, Summary
from agent.steps.types.outcome import Succeeded, Waiting
from agent.store.db.database import Database
from agent.store.engine import conversation_rows
from agent.tasks.commit.batch import Batch
from agent.tasks.read_models.conversations import ConversationReader
from agent.workflows.graph import Graph, Step
from tests.support.conversations import said_before
from tests.support.engine import NOW, Engine, Hand, Start, eventually, graph, settle_of, step
from tests.support.model_servers import Provider, Say, providing
from tests.support.model_steps import catalog

CHAT = "telegram:1"
ORIGIN = ChatOrigin("telegram", "1").dump()
TOOL = {"tools": {"look": {"python": "tests.support.step_functions:noop"}}}
"""A tool that a person has to approve."""


def talk(goal: str = "hello", /, **options: Any) -> Step:
    """Return an agent that goes on with the conversation of its chat."""
    config = {"goal": goal, "model": "priced", "conversation": CHAT, **options.pop("config", {})}
    return Step(name="it", kind="agent", config=config, retry=NOW, **options)


def exchange(number: int, summary: Summary | None = None) -> Succeeded:
    """Return the outcome of a step that was asked and answered something."""
    said = Exchange(CHAT, f"question {number}", 3, f"answer {number}", 2, summary)
    return Succeeded(f"answer {number}", exchange=said)


def entries(reader: Hand | Engine, conversation: str = CHAT) -> list[tuple[int, str, str]]:
    """Return (number, role, text) of a conversation's entries."""
    found = reader.rows(
        "SELECT number, role, content FROM conversation_turns WHERE conversation = :id"
        " ORDER BY number",
        id=conversation,
    )
    return [(int(number), str(role), str(text)) for number, role, text in found]


def asked(server: Provider, number: int = -1) -> list[str]:
    """Return the texts of a request to the model, in order."""
    messages = server.requests[number]["messages"]
    return [str(message["content"]) for message in messages if message["role"] != "system"]


@pytest.fixture
def server() -> Iterator[Provider]:
    """Return a model that answers every message with its own words and a number."""
    with providing(Say("yes")) as server:

        def decide(request: dict[str, Any]) -> Say:
            last = request["messages"][-1]["content"]
            if last.startswith("Summarise"):
                return Say("they have met")
            return Say(f"I heard: {last}")

        server.decide = decide
        yield server


@pytest.fixture
def talking(start: Start, server: Provider) -> Engine:
    """Return an engine whose agents talk to that model."""
    return start(models=catalog(server), poll_seconds=0.05)


def ask_first(request: dict[str, Any]) -> Say:
    """Ask for a tool when that is the message, and else answer."""
    if request["messages"][-1]["content"] == "ask first":
        return Say("", tools=[("u", "look", {})])
    return Say("done")


class TestAppending:
    """What a step appends, and when."""

    def test_an_exchange_is_appended_by_the_commit_that_settles_its_step(self, hand: Hand) -> None:
        """Before that commit there is nothing, with it the message and the answer, numbered on."""
        task = hand.start(graph(step("a"), step("b", after=["a"])))
        assert entries(hand) == []
        hand.settle({"a": exchange(1)})
        assert entries(hand) == [(1, "user", "question 1"), (2, "assistant", "answer 1")]
        hand.settle({"b": exchange(2)})
        assert [number for number, _, _ in entries(hand)] == [1, 2, 3, 4]
        ((found,),) = hand.rows("SELECT DISTINCT task_id FROM conversation_turns")
        assert found == task

    def test_a_lost_attempt_appends_nothing(self, hand: Hand) -> None:
        """An outcome under an old claim changes no conversation."""
        hand.start(graph(step("a")))
        late = settle_of(hand.claimed("a"), exchange(1))
        hand.operator.cancel(late.claim.task_id)
        hand.commit(Batch(completions=[late]))
        assert entries(hand) == []

    def test_steps_of_one_commit_share_a_conversation(self, hand: Hand) -> None:
        """Each exchange stays together, and numbers have no gap."""
        hand.start(graph(step("a"), step("b"), step("c")))
        summary = Summary("all of it", 2, 2)
        hand.settle({"a": exchange(1)})
        hand.settle({"b": exchange(2, summary), "c": exchange(3, Summary("older", 1, 1))})
        assert [(number, role) for number, role, _ in entries(hand)] == [
            (1, "user"),
            (2, "assistant"),
            (3, "user"),
            (4, "assistant"),
            (5, "user"),
            (6, "assistant"),
            (7, "summary"),
        ]
        assert entries(hand)[-1][2] == "all of it"

    def test_a_summary_of_nothing_new_is_dropped(self, hand: Hand) -> None:
        """Where another step summed up as much, the number of the second summary stays free."""
        hand.start(graph(step("a"), step("b"), step("c")))
        hand.settle({"a": exchange(1)})
        hand.settle({"b": exchange(2, Summary("first", 1, 2))})
        hand.settle({"c": exchange(3, Summary("second", 1, 2))})
        assert [role for _, role, _ in entries(hand)].count("summary") == 1
        assert entries(hand)[-1] == (7, "assistant", "answer 3")

    def test_a_deleted_conversation_stays_deleted(self, hand: Hand) -> None:
        """A step that began before appends its own words only, and no number is used again."""
        hand.start(graph(step("a"), step("b")))
        hand.settle({"a": exchange(1)})
        with hand.database.connect("writer") as tx, tx.transaction():
            assert conversation_rows.forget(tx, CHAT) == 2
            assert conversation_rows.forget(tx, "other") is None
        hand.settle({"b": exchange(2, Summary("what was deleted", 3, 2))})
        assert entries(hand) == [(3, "user", "question 2"), (4, "assistant", "answer 2")]

    def test_a_retry_does_not_append_again(self, hand: Hand) -> None:
        """A step that is kept was answered in the earlier task."""
        task = hand.start(graph(step("a"), step("b", after=["a"])))
        hand.settle({"a": exchange(1)})
        hand.fail("b")
        hand.operator.retry(task)
        hand.commit()
        hand.succeed("b")
        assert len(entries(hand)) == 2


class TestLoading:
    """What a step loads, and what the model gets."""

    def test_the_model_gets_what_was_said_before(self, talking: Engine, server: Provider) -> None:
        """The next task's request begins with the earlier messages and answers."""
        talking.run(graph(talk("I am Ada")))
        done = talking.run(graph(talk("who am I?")))
        assert done["output"] == {"it": "I heard: who am I?"}
        assert asked(server) == ["I am Ada", "I heard: I am Ada", "who am I?"]
        assert [number for number, _, _ in entries(talking)] == [1, 2, 3, 4]

    def test_a_step_without_a_name_keeps_none(self, talking: Engine, server: Provider) -> None:
        """An empty name means that nothing is loaded or appended."""
        talking.run(
            graph(
                talk("hello", config={"conversation": "{{ trigger.conversation | default('') }}"})
            )
        )
        assert talking.rows("SELECT * FROM conversation_turns") == []
        assert len(server.requests) == 1

    def test_a_failed_step_leaves_nothing(self, start: Start) -> None:
        """The message that was not answered is in its task only; its retry appends both."""
        with providing(Say("no", stop="length"), Say("yes")) as server:
            engine = start(models=catalog(server))
            failed = engine.run(graph(talk("hello")))
            assert failed["status"] == "failed" and entries(engine) == []
            again = engine.operator.retry(failed["id"]).task_id
            engine.wait(again, "succeeded")
            assert entries(engine) == [(1, "user", "hello"), (2, "assistant", "yes")]

    def test_a_later_attempt_sees_the_same_entries(self, start: Start, server: Provider) -> None:
        """Words that come while a step waits for a person are no part of what it goes on with."""
        engine = start(models=catalog(server))
        said_before(engine.database, CHAT, ("one", "1"))
        server.decide = ask_first
        first = engine.submit(graph(talk("ask first", config=TOOL)))
        engine.wait_step(first, "it", "waiting")
        engine.run(graph(talk("in between")))
        ((question,),) = engine.rows("SELECT id FROM approvals WHERE status = 'pending'")
        approve(engine.database, question)
        engine.wait(first, "succeeded")
        assert asked(server)[:3] == ["one", "1", "ask first"]
        assert "in between" not in asked(server)
        assert [text for _, role, text in entries(engine) if role == "user"] == [
            "one",
            "in between",
            "ask first",
        ]

    def test_a_deletion_in_between_is_reported(self, start: Start, server: Provider) -> None:
        """The step that had loaded what was deleted fails, and says what to do."""
        engine = start(models=catalog(server))
        said_before(engine.database, CHAT, ("one", "1"))
        server.decide = ask_first
        task = engine.submit(graph(talk("ask first", config=TOOL)))
        engine.wait_step(task, "it", "waiting")
        with engine.database.connect("writer") as tx, tx.transaction():
            conversation_rows.forget(tx, CHAT)
        ((question,),) = engine.rows("SELECT id FROM approvals WHERE status = 'pending'")
        approve(engine.database, question)
        failed = engine.wait(task, "failed")
        assert failed["error"]["code"] == "conversation_deleted"

    def test_older_entries_are_summed_up_on_record(self, talking: Engine, server: Provider) -> None:
        """Beyond the bound the model sums up; the summary is an entry, and the rows stay."""
        long = "x" * 300
        said_before(
            talking.database,
            CHAT,
            *[(f"{number} {long}", f"answer {number}") for number in range(6)],
        )
        done = talking.run(graph(talk("and now?", config={"conversation_tokens": 300})))
        assert done["status"] == "succeeded"
        summary, request = server.requests[-2:]
        assert summary["messages"][0]["content"].startswith("Summarise")
        assert f"user: 0 {long}" in summary["messages"][0]["content"]
        texts = [message["content"] for message in request["messages"]]
        assert texts[0] == "[Summary of what was said before]\nthey have met"
        assert texts[-1] == "and now?" and f"0 {long}" not in texts
        number, role, text = entries(talking)[-1]
        assert (number, role, text) == (15, "summary", "they have met")
        ((covers,),) = talking.rows("SELECT max(covers_until) FROM conversation_turns")
        kept = [text for text in texts if text.endswith(long)]
        assert kept == [
            text for n, role, text in entries(talking) if covers < n < 13 and role == "user"
        ]
        # The next one begins with the summary, and asks for no other.
        count = len(server.requests)
        talking.run(graph(talk("so?", config={"conversation_tokens": 300})))
        assert len(server.requests) == count + 1
        assert asked(server)[0].endswith("they have met") and "and now?" in asked(server)

    def test_a_summary_counts_for_the_budget(self, talking: Engine, server: Provider) -> None:
        """It is a call of the model like any other: with a budget, and on record."""
        said_before(talking.database, CHAT, *[("y" * 400, "z" * 400) for _ in range(4)])
        step = talk("and?", config={"conversation_tokens": 200, "max_tokens": 10})
        task = talking.submit(graph(step, budget={"tokens": 20}))
        paused = talking.wait(task, "paused")
        assert "budget" in paused["pause_reason"] and server.requests == []


class TestTurns:
    """Tasks of one conversation answer in the order of their messages."""

    def test_only_what_keeps_the_conversation_stands_in_line(self, hand: Hand) -> None:
        """Other workflows that a chat starts hold nothing up, nor do tasks without a chat, nor children."""
        kept, other, without, child = hand.submit(graph(talk()), slots=0, chat_origin=ORIGIN) + [
            hand.submit(graph(steps), slots=0, **options)[0]
            for steps, options in (
                (step("a"), {"chat_origin": ORIGIN}),
                (talk(), {}),
                (talk(), {"chat_origin": ORIGIN, "parent_task_id": "other"}),
            )
        ]
        rows = dict(hand.rows("SELECT id, conversation FROM tasks"))
        assert rows == {kept: CHAT, other: None, without: None, child: None}
        hand.operator.cancel(child)

    def test_the_second_message_waits_for_the_first_answer(
        self, talking: Engine, server: Provider
    ) -> None:
        """Its step parks, named, without a slot; then it sees the first exchange."""
        server.gate = threading.Event()
        first = submit(talking, graph(talk("one")))
        eventually(lambda: len(server.requests) == 1)
        second = submit(talking, graph(talk("two")))
        waiting = talking.wait_step(second, "it", "waiting")
        assert waiting["waiting_on"]["turn_after"] == first
        server.gate.set()
        talking.wait(second, "succeeded")
        assert asked(server) == ["one", "I heard: one", "two"]
        roles = [text for _, role, text in entries(talking) if role == "user"]
        assert roles == ["one", "two"]

    def test_the_order_is_that_of_the_messages(self, hand: Hand) -> None:
        """A task whose agent has not started yet comes first too, and one that waits for its turn."""
        reader = hand_reader(hand)
        first = submit_by(hand, graph(step("before"), talk("one", depends_on=["before"])))
        second = submit_by(hand, graph(talk("two")))
        third = submit_by(hand, graph(talk("three")))
        assert reader(second) == first and reader(third) == first and reader(first) is None
        hand.succeed("before", task_id=first)
        hand.settle({"it": exchange(1)}, first)
        wake_at = hand.clock.now() + 10**9
        hand.settle({"it": Waiting(Timer(wake_at, turn_after=first), wake_at)}, second)
        assert reader(second) is None and reader(third) == second

    def test_a_task_that_waits_for_a_person_holds_nothing_up(
        self, talking: Engine, server: Provider
    ) -> None:
        """The chat goes on; the answer that was waited for comes when it comes."""
        server.decide = ask_first
        first = submit(talking, graph(talk("ask first", config=TOOL)))
        talking.wait_step(first, "it", "waiting")
        second = submit(talking, graph(talk("two")))
        talking.wait(second, "succeeded")
        assert talking.status(first) == "running"
        assert [text for _, _, text in entries(talking)] == ["two", "done"]

    def test_paused_and_ended_tasks_hold_nothing_up(self, hand: Hand) -> None:
        """Only a task that will answer by itself counts."""
        reader = hand_reader(hand)
        first = submit_by(hand, graph(talk("one")))
        second = submit_by(hand, graph(talk("two")))
        assert reader(second) == first
        hand.operator.pause(first)
        assert reader(second) is None
        hand.operator.resume(first)
        hand.operator.cancel(first)
        assert reader(second) is None

    def test_a_retry_goes_to_the_end_of_the_line(self, hand: Hand) -> None:
        """It answers after the messages that came meanwhile."""
        reader = hand_reader(hand)
        first = submit_by(hand, graph(talk("one")))
        hand.fail("it", task_id=first)
        second = submit_by(hand, graph(talk("two")))
        again = hand.operator.retry(first).task_id
        assert reader(second) is None and reader(again) == second


def approve(database: Database, question: str) -> None:
    """Approve a question as a person at the terminal does."""
    answering.answer(database, question, "approve", principal=terminal_user("ada"))


def submit(engine: Engine, graph: Graph) -> str:
    """Submit a task as a chat does."""
    return engine.submit(graph, chat_origin=ORIGIN)


def submit_by(hand: Hand, graph: Graph) -> str:
    """Submit a task as a chat does, with a worker whose commits the test makes."""
    return hand.start(graph, chat_origin=ORIGIN)


def hand_reader(hand: Hand) -> Callable[[str], str | None]:
    """Return what a step asks before it begins: the task that comes first."""
    reader = ConversationReader(hand.database)
    return lambda task_id: asyncio.run(reader.task_before(CHAT, task_id))


def test_a_load_is_recorded_by_its_number_alone(talking: Engine) -> None:
    """The load is one small record: the number of the newest entry, and how many were loaded."""
    said_before(talking.database, CHAT, ("one", "1"))
    task = talking.run(graph(talk("two")))["id"]
    ((response,),) = talking.rows(
        "SELECT response FROM tool_calls WHERE task_id = :id AND action = 'conversation#1'",
        id=task,
    )
    assert json.loads(response) == {"until": 2, "entries": 2}
