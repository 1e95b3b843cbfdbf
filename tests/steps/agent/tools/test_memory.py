"""The tool `memory`: remember, recall and forget in one scope, each once under its call's key."""

from typing import Any

import pytest
from pydantic import ValidationError

from agent.core.redaction import everywhere
from agent.core.state_machine import ApprovalStatus, CallStatus
from agent.steps.spec.agent_config import AgentConfig
from agent.steps.types.outcome import Failed, StepError, Succeeded
from agent.store.db.database import CommitUnknownError, Database
from agent.store.db.dialect import Fault
from agent.tool_services import memories
from agent.tool_services.memories import Memories
from agent.tool_services.tool_memory import ToolMemory
from tests.support.agent_loop import answers, approved, trial, uses
from tests.support.attempt import Trial, run
from tests.support.lost_results import lose_result


def memory_trial(database: Database, script: list[Any], **tool: Any) -> Trial:
    """Return a trial of an agent with the tool `memory` on a database."""
    approve = {"approve": tool.pop("approve")} if "approve" in tool else {}
    made = trial(script, {"notes": {"memory": tool, **approve}})
    made.services.memory = ToolMemory(Memories(database, database.clock))
    return made


def texts(database: Database, scope: str | None = None) -> list[str]:
    """Return what is remembered, the newest first."""
    with database.connect("reader") as connection:
        return [each["text"] for each in memories.list_memories(connection, scope, 100)]


def test_what_one_task_remembers_another_recalls(database: Database) -> None:
    """A text is found by the beginning of a word, without approval, in the workflow's own scope."""
    fact = "Anna's dentist is Dr. Müller, 天気がいい日だけ"
    first = memory_trial(database, [uses(("notes_remember", {"text": fact})), "done"])
    assert run(first.attempt()) == Succeeded("done")
    script = [
        uses(("notes_recall", {"query": "dent"}), ("notes_recall", {"query": "天"})),
        uses(("notes_recall", {"query": "plumber"}), ("notes_recall", {})),
        "done",
    ]
    second = memory_trial(database, script)
    assert run(second.attempt()) == Succeeded("done")
    found = [answer["text"] for answer in answers(second)]
    assert [fact in text for text in found] == [True, True, False, True]
    assert found[2] == "[]"
    assert texts(database, "workflow:trial") == [fact]


def test_the_definition_chooses_the_scope(database: Database) -> None:
    """A shared scope is seen by every workflow that names it; a model cannot name another one."""
    script = [uses(("notes_remember", {"text": "tea", "scope": "workflow:trial"})), "done"]
    refused = memory_trial(database, script, scope="personal")
    run(refused.attempt())
    assert "scope" in answers(refused)[0]["refused"]
    script = [uses(("notes_remember", {"text": "tea at five"})), "done"]
    shared = memory_trial(database, script, scope="personal")
    assert run(shared.attempt()) == Succeeded("done")
    assert texts(database, "personal") == ["tea at five"]
    own = memory_trial(database, [uses(("notes_recall", {"query": "tea"})), "done"])
    run(own.attempt())
    assert answers(own) == [{"text": "[]"}]


def test_a_repeated_call_finds_its_row(database: Database) -> None:
    """A crash between the row and its record leaves one memory, and the same answer."""
    script = [uses(("notes_remember", {"text": "the code is 1234"})), "done"]
    made = memory_trial(database, script)
    assert run(made.attempt()) == Succeeded("done")
    (before,) = answers(made)
    lose_result(made, "tool.notes_remember")
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[-1] == before
    assert texts(database) == ["the code is 1234"]


def test_a_call_keeps_its_key_after_a_failed_attempt(database: Database) -> None:
    """A use that was interrupted by the attempt's timeout may have written its row all the same."""
    made = memory_trial(database, [uses(("notes_remember", {"text": "kept"})), "done"])
    run(made.attempt())
    lose_result(made, "tool.notes_remember")
    _, intent = made.journal.intents[-1]
    error = StepError("failed", "code", "CancelledError")
    made.journal.resolve_by_person(CallStatus.FAILED, error=error)
    made.failures = 1
    assert run(made.attempt()) == Succeeded("done")
    assert made.journal.intents[-2][1].remote_key == intent.remote_key
    assert texts(database) == ["kept"]


def test_a_repeated_call_does_not_remember_what_was_forgotten(database: Database) -> None:
    """Forgotten between a lost call and its repetition, a memory stays forgotten."""
    made = memory_trial(database, [uses(("notes_remember", {"text": "old"})), "done"])
    run(made.attempt())
    lose_result(made, "tool.notes_remember")
    Memories(database, database.clock).forget(1)
    assert run(made.attempt()) == Succeeded("done")
    assert texts(database) == []


def test_a_later_attempt_sees_what_was_recalled_first(database: Database) -> None:
    """The answer is on record: what was remembered since then does not change the conversation."""
    store = Memories(database, database.clock)
    store.remember("workflow:trial", "red", written_by="test")
    made = memory_trial(database, [uses(("notes_recall", {"query": "red"})), "done"])
    run(made.attempt())
    before = answers(made)
    store.remember("workflow:trial", "red and blue", written_by="test")
    made.crash()
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made) == before
    assert "blue" not in before[0]["text"]


def test_forgetting_is_final_and_within_the_scope(database: Database) -> None:
    """A forgotten memory is not found again; one of another scope does not exist for the model."""
    store = Memories(database, database.clock)
    mine = store.remember("workflow:trial", "green tea", written_by="test")["id"]
    other = store.remember("personal", "green house", written_by="test")["id"]
    script = [
        uses(("notes_forget", {"id": mine}), ("notes_forget", {"id": other})),
        uses(("notes_recall", {"query": "green"}), ("notes_forget", {"id": mine})),
        "done",
    ]
    made = memory_trial(database, script)
    assert run(made.attempt()) == Succeeded("done")
    forgot, foreign, found, again = answers(made)
    assert forgot == {"text": f'{{"forgotten": {mine}}}'}
    assert foreign["is_error"] and f"no memory {other} in the scope" in foreign["text"]
    assert found == {"text": "[]"}
    assert again["is_error"] and "forgotten already" in again["text"]
    assert texts(database) == ["green house"]


def test_a_repeated_forget_finds_it_done(database: Database) -> None:
    """The row names the call that had it forgotten."""
    Memories(database, database.clock).remember("workflow:trial", "x1", written_by="test")
    made = memory_trial(database, [uses(("notes_forget", {"id": 1})), "done"])
    run(made.attempt())
    lose_result(made, "tool.notes_forget")
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[-1] == {"text": '{"forgotten": 1}'}


def test_a_person_may_be_asked_before_a_memory_is_written(database: Database) -> None:
    """`approve: always` asks for what writes, and never for a recall."""
    script = [
        uses(("notes_recall", {})),
        uses(("notes_remember", {"text": "asked"})),
        "done",
    ]
    made = memory_trial(database, script, approve="always")
    outcome = run(made.attempt())
    assert texts(database) == []
    approved(made, ApprovalStatus.APPROVED, outcome)
    assert run(made.attempt()) == Succeeded("done")
    assert texts(database) == ["asked"]


def test_secrets_are_redacted_before_they_are_stored(database: Database) -> None:
    """Neither the text nor its words have the value."""
    everywhere.hide("hunter2-hunter2", "env:PASSWORD")
    text = "the password is hunter2-hunter2"
    made = memory_trial(database, [uses(("notes_remember", {"text": text})), "done"])
    run(made.attempt())
    assert texts(database) == ["the password is [redacted]"]
    store = Memories(database, database.clock)
    added = store.remember("workflow:trial", f"again: {text}", written_by="terminal:ada")
    assert added["text"] == "again: the password is [redacted]"
    assert store.recall("workflow:trial", "hunter2", 10) == []


def test_limits_are_told_to_the_model(database: Database) -> None:
    """Too long a text, an empty one and a full scope: each is an answer that says what to do."""
    script = [
        uses(("notes_remember", {"text": "x" * 4001}), ("notes_remember", {"text": " "})),
        uses(("notes_remember", {"text": "one"}), ("notes_remember", {"text": "two"})),
        "done",
    ]
    made = memory_trial(database, script)
    made.services.memory = ToolMemory(Memories(database, database.clock, max_per_scope=1))
    assert run(made.attempt()) == Succeeded("done")
    long, empty, first, full = answers(made)
    assert "4,001 characters" in long["text"] and "nothing to remember" in empty["text"]
    assert "is_error" not in first
    assert "forget some first" in full["text"]
    assert texts(database) == ["one"]


def test_a_lost_commit_is_repeated_under_the_same_key(database: Database) -> None:
    """When the acknowledgement of a COMMIT is lost, the write is made again and finds its row."""

    class Losing(Memories):
        losses = 2

        def remember(self, *args: Any, **options: Any) -> dict[str, Any]:
            document = super().remember(*args, **options)
            if self.losses:
                self.losses -= 1
                raise CommitUnknownError(Fault.LOST, "the connection was lost")
            return document

    made = memory_trial(database, [uses(("notes_remember", {"text": "once"})), "done"])
    made.services.memory = ToolMemory(Losing(database, database.clock))
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made) == [{"text": '{"remembered": 1}'}]
    assert texts(database) == ["once"]


def test_only_allowed_verbs_are_tools(database: Database) -> None:
    """`allow: [recall]` gives a memory that a model can only read."""
    script = [uses(("notes_remember", {"text": "no"})), "done"]
    made = memory_trial(database, script, allow=["recall"])
    run(made.attempt())
    assert "there is no tool 'notes_remember'" in answers(made)[0]["refused"]


def test_a_worker_without_memories_fails_the_step_with_a_reason() -> None:
    """A program that builds its own worker learns what is missing."""
    made = trial([uses(("notes_recall", {})), "done"], {"notes": {"memory": {}}})
    outcome = run(made.attempt())
    assert isinstance(outcome, Failed)
    assert "no memory" in outcome.error.message


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"memory": {"scope": "workflow:other"}}, "pattern"),
        ({"memory": {"allow": ["delete"]}}, "remember"),
        ({"memory": {}, "on_unknown": "ask"}, "never unknown"),
        ({"memory": {}, "effect": "none"}, "takes no effect"),
        ({"engine": {"allow": ["approve"]}}, "list"),
        ({"engine": {"allow": ["list", "list"]}}, "twice"),
        ({"engine": {}, "memory": {}}, "exactly one"),
    ],
)
def test_a_wrong_definition_is_refused(tool: dict[str, Any], message: str) -> None:
    """`agent validate` says what is wrong with a tool."""
    with pytest.raises(ValidationError, match=message):
        AgentConfig.model_validate({"goal": "x", "tools": {"it": tool}})
