"""`/schedules` and `/watchers` in chats, and free text that starts a workflow."""

import json
import re
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from agent.approvals.permission import Principal
from agent.channels.chat.command_handler import CommandHandler
from agent.core.logs import audit
from agent.core.scopes import SCOPES, implied
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database
from agent.store.read.task_list import TaskFilter
from agent.tasks.read_models import task_documents, task_list
from agent.triggers.check import check_watcher
from tests.support.recorded_triggers import fates, record_workflow, trigger_row

OWNER = Principal("telegram", "7", implied(SCOPES), is_paired=True)
READER = Principal("telegram", "8", implied(["read"]), is_paired=True)
STRANGER = Principal("telegram", "9", implied(SCOPES))
WORKFLOW = """\
name: report
on:
  schedule: {id: daily, cron: 0 9 * * *, timezone: Asia/Tokyo}
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
    assert "✓ started " in shown and "– skipped 20" in shown
    assert "resumed" in handler.reply(OWNER, "/schedules resume daily")
    assert "neither a duration" in handler.reply(OWNER, "/schedules pause daily soon")
    assert handler.reply(OWNER, "/watchers").startswith("report:lines")
    assert handler.reply(OWNER, "/watchers run lines") == "report:lines: it polls now"
    assert "has no instants to skip" in handler.reply(OWNER, "/watchers skip lines")


def test_times_are_those_of_the_schedule(
    sqlite_database: Database, handler: CommandHandler
) -> None:
    """Nine in Tokyo is nine, whatever zone the agent's machine has."""
    assert re.fullmatch(
        r"report:daily  next 20\d\d-\d\d-\d\d 09:00 JST", handler.reply(OWNER, "/schedules")
    )
    shown = handler.reply(OWNER, "/schedules show daily").splitlines()
    assert "cron 0 9 * * * (Asia/Tokyo)" in shown
    assert sum(line.startswith("next: ") and line.endswith(" 09:00 JST") for line in shown) == 4
    until = handler.reply(OWNER, "/schedules pause daily 2031-05-01T12:00")
    assert until == "report:daily: paused until 2031-05-01 12:00 JST"
    assert "paused until 2031-05-01 12:00 JST" in handler.reply(OWNER, "/schedules")


def test_a_backfill_and_a_reset_from_a_chat(
    sqlite_database: Database, handler: CommandHandler
) -> None:
    """As on the command line: a dry run names the instants, and queues nothing."""
    dry = handler.reply(OWNER, "/schedules backfill daily 2026-03-01 2026-03-02 dry-run")
    assert dry.splitlines() == [
        "report:daily: would queue 2 runs",
        "2026-03-01 09:00 JST",
        "2026-03-02 09:00 JST",
    ]
    assert fates(sqlite_database, "report:daily") == {}
    queued = handler.reply(OWNER, "/schedules backfill daily 2026-03-01 2026-03-02")
    assert queued.startswith("report:daily: queued 2 runs")
    assert sorted(fates(sqlite_database, "report:daily")) == [
        "2026-03-01T00:00:00.000Z",
        "2026-03-02T00:00:00.000Z",
    ]
    handler.reply(OWNER, "/schedules pause daily")
    assert "resumed" in handler.reply(OWNER, "/schedules resume daily catch-up")
    assert "its next poll is a first one" in handler.reply(OWNER, "/watchers reset lines")
    assert "has no instants to backfill" in handler.reply(OWNER, "/watchers backfill lines 2d")


def test_a_check_from_a_chat_shows_what_would_start(sqlite_database: Database) -> None:
    """The source is polled, and nothing is recorded."""
    text = WORKFLOW.replace('["true"]', """[echo, '{"key": "a", "title": "A"}']""")
    record_workflow(sqlite_database, text)
    check = partial(check_watcher, sqlite_database, sqlite_database.clock, Limits())
    handler = CommandHandler(sqlite_database, 100, check_watcher=check)
    assert handler.reply(OWNER, "/watchers check lines").splitlines() == [
        "report:lines: 1 found, 0 known, 1 new",
        "· baseline a",
        'the newest item: {"key": "a", "title": "A"}',
    ]
    assert fates(sqlite_database, "report:lines") == {}
    assert handler.reply(READER, "/watchers check lines").endswith("needs the scope 'operate'")
    assert "it is a schedule" in handler.reply(OWNER, "/schedules check daily")


def test_control_needs_the_scope_and_leaves_a_line(
    sqlite_database: Database,
    handler: CommandHandler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader sees schedules and changes none of them."""
    monkeypatch.setattr(audit, "_path", tmp_path / audit.NAME)
    assert "report:daily" in handler.reply(READER, "/schedules show daily")
    for verb in ("pause", "resume", "run", "skip", "backfill", "check"):
        more = " 2d" if verb == "backfill" else ""
        reply = handler.reply(READER, f"/schedules {verb} daily{more}")
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
