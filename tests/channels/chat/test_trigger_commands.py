"""`/schedules` and `/watchers` in chats, and free text that starts a workflow."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from agent.approvals.permission import Principal
from agent.channels.chat.command_handler import CommandHandler
from agent.core.logs import audit
from agent.core.scopes import SCOPES, implied
from agent.store.db.database import Database
from agent.store.read.task_list import TaskFilter
from agent.tasks.read_models import task_documents, task_list
from tests.support.recorded_triggers import fates, record_workflow, trigger_row

OWNER = Principal("telegram", "7", implied(SCOPES), is_paired=True)
READER = Principal("telegram", "8", implied(["read"]), is_paired=True)
STRANGER = Principal("telegram", "9", implied(SCOPES))
WORKFLOW = """\
name: report
on:
  schedule: {id: daily, cron: 0 9 * * *, timezone: UTC}
  watch: {id: lines, command: {argv: ["true"]}, every: 1h}
steps: {rest: {wait: 1ms}}
"""
ASSISTANT = """\
name: assistant
description: an assistant
on: {chat: {text: true, description: ask the assistant}}
steps: {rest: {wait: 1ms}}
"""


@pytest.fixture
def handler(sqlite_database: Database) -> CommandHandler:
    """Return the commands of chats on a database with triggers."""
    record_workflow(sqlite_database, WORKFLOW)
    return CommandHandler(sqlite_database, 100)


def test_schedules_are_listed_and_controlled(
    sqlite_database: Database, handler: CommandHandler
) -> None:
    """Each reply names the trigger and what happened; a repeated message runs it once."""
    assert handler.reply(OWNER, "/schedules").startswith("report:daily  next 20")
    first = handler.reply(OWNER, "/schedules run daily", "m1")
    assert first.startswith("report:daily: started as task ")
    assert "already started as task" in handler.reply(OWNER, "/schedules run daily", "m1")
    assert list(fates(sqlite_database, "report:daily").values()) == ["started"]
    skipped = handler.reply(OWNER, "/schedules skip daily", "m2")
    again = handler.reply(OWNER, "/schedules skip daily", "m2")
    assert skipped.startswith("report:daily: skipped ")
    assert again.startswith("report:daily: already skipped ")
    assert "paused until" in handler.reply(OWNER, "/schedules pause daily 2h")
    shown = handler.reply(OWNER, "/schedules show daily")
    assert "paused until" in shown
    assert "✓ started manual/" in shown and "– skipped" in shown
    assert "resumed" in handler.reply(OWNER, "/schedules resume daily")
    assert "neither a duration" in handler.reply(OWNER, "/schedules pause daily soon")
    assert handler.reply(OWNER, "/watchers").startswith("report:lines")
    assert handler.reply(OWNER, "/watchers run lines") == "report:lines: it polls now"
    assert "has no instants to skip" in handler.reply(OWNER, "/watchers skip lines")


def test_control_needs_the_scope_and_leaves_a_line(
    sqlite_database: Database,
    handler: CommandHandler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader sees schedules and changes none of them."""
    monkeypatch.setattr(audit, "_path", tmp_path / audit.NAME)
    assert "report:daily" in handler.reply(READER, "/schedules show daily")
    for verb in ("pause", "resume", "run", "skip"):
        reply = handler.reply(READER, f"/schedules {verb} daily")
        assert reply == f"/schedules {verb} needs the scope 'operate'"
    assert "not paired" in handler.reply(STRANGER, "/schedules")
    assert trigger_row(sqlite_database, "report:daily").status == "active"
    handler.reply(OWNER, "/schedules pause daily")
    (line,) = map(json.loads, (tmp_path / audit.NAME).read_text().splitlines())
    assert (line["who"], line["what"]) == ("telegram:7", "pause trigger")
    assert (line["trigger"], line["outcome"]) == ("daily", "done")


def test_free_text_starts_the_workflow_that_takes_it(
    sqlite_database: Database, handler: CommandHandler
) -> None:
    """The task sees the text; a message that arrives twice starts one task."""
    assert "commands begin with a slash" in handler.reply(OWNER, "what is up?")
    record_workflow(sqlite_database, ASSISTANT)
    reply = handler.reply(OWNER, " what is up?\n", "m1")
    assert reply == handler.reply(OWNER, " what is up?\n", "m1")
    assert reply.startswith("started assistant: task ")
    with sqlite_database.connect("reader") as connection:
        (task,) = task_list.list_tasks(connection, TaskFilter(workflow="assistant"), 9)
        document = task_documents.task_document(connection, task["id"])
    trigger = document["trigger"]
    assert datetime.fromisoformat(trigger.pop("at")).tzinfo is not None
    assert trigger == {
        "kind": "chat",
        "channel": "telegram",
        "by": "7",
        "text": "what is up?",
    }
    assert "any other text – ask the assistant" in handler.reply(OWNER, "/help")
    assert "any other text" not in handler.reply(READER, "/help")
    assert handler.reply(READER, "hello") == "free text needs the scope 'operate'"
    assert "not paired" in handler.reply(STRANGER, "hello")
    assert "longer than 10,000" in handler.reply(OWNER, "x" * 10_001)
    assert "commands begin with a slash" in handler.reply(OWNER, "  ")


def test_two_workflows_that_take_free_text_start_neither(
    sqlite_database: Database, handler: CommandHandler
) -> None:
    """The reply names both and says what to do."""
    record_workflow(sqlite_database, ASSISTANT)
    record_workflow(sqlite_database, ASSISTANT.replace("name: assistant", "name: butler"))
    reply = handler.reply(OWNER, "hello")
    assert "several workflows take free text (assistant, butler)" in reply
    with sqlite_database.connect("reader") as connection:
        assert task_list.list_tasks(connection, limit=9) == []
