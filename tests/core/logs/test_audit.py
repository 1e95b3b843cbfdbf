"""The audit log: one line for every operator's command, from whatever surface, and bounded."""

import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.approvals.permission import Principal
from agent.channels.chat.command_handler import CommandHandler
from agent.core.logs import audit
from agent.core.scopes import SCOPES
from agent.store.db.database import Database
from tests.support.sample_workflows import SIGNALLED
from tests.support.server import Running


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    audit._path = None


def _lines(home: Path) -> list[dict[str, Any]]:
    path = home / audit.NAME
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_commands_over_the_api_are_recorded(sqlite_database: Database, tmp_path: Path) -> None:
    """Who, from where, what, on which task, with which outcome; reading leaves no line."""
    with Running(sqlite_database, tmp_path) as running, running.client() as client:
        audit.configure(running.home)
        running.add_workflow(SIGNALLED)
        task_id = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
        client.get(f"/api/v1/tasks/{task_id}")
        assert _lines(running.home) == []
        client.post(f"/api/v1/tasks/{task_id}/pause", json={"reason": "a private reason"})
        client.post(f"/api/v1/tasks/{task_id}/retry")
        with running.client(running.token_with("read")) as reader:
            reader.post(f"/api/v1/tasks/{task_id}/cancel")
        paused, retried, canceled = _lines(running.home)
        assert paused.pop("at")
        assert paused == {
            "who": "api:owner",
            "from": "127.0.0.1",
            "what": "pause",
            "task": task_id,
            "outcome": "done",
        }
        assert retried["outcome"].startswith("refused: ")
        assert (canceled["who"], canceled["what"]) == ("api:read", "cancel")
        assert "scope" in canceled["outcome"]
        assert (running.home / audit.NAME).stat().st_mode & 0o777 == 0o600
        client.post(f"/api/v1/tasks/{task_id}/resume")
        client.post(f"/api/v1/tasks/{task_id}/signals/go", json={"pin": "secret-pin"})
        client.delete("/api/v1/workflows/signalled")
        whats = [line["what"] for line in _lines(running.home)[3:]]
        assert whats == ["resume", "signal", "delete workflow"]
        assert "secret-pin" not in (running.home / audit.NAME).read_text(encoding="utf-8")


def test_guessed_links_do_not_fill_the_audit_log(sqlite_database: Database, tmp_path: Path) -> None:
    """Beyond the limit of an address no line is added: otherwise anyone could push out the others."""
    with Running(sqlite_database, tmp_path) as running, running.client("") as stranger:
        audit.configure(running.home)
        answers = [stranger.post("/sign-in/guessed").status_code for _ in range(25)]
        assert answers == [404] * 20 + [429] * 5
        assert len(_lines(running.home)) == 20


def test_commands_in_a_chat_are_recorded(sqlite_database: Database, tmp_path: Path) -> None:
    """A chat's commands name the person and the channel; questions leave no line."""
    audit.configure(tmp_path)
    handler = CommandHandler(sqlite_database, 100)
    principal = Principal("telegram", "12345", frozenset(SCOPES), is_paired=True)
    handler.reply(principal, "/status")
    handler.reply(principal, "/cancel nothing")
    (line,) = _lines(tmp_path)
    assert (line["who"], line["from"], line["what"]) == ("telegram:12345", "telegram", "cancel")
    assert line["outcome"].startswith("refused: ")


def test_a_chat_command_beyond_its_scopes_is_recorded(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """A paired person who lacks a scope leaves a line, as over the API; a stranger leaves none."""
    audit.configure(tmp_path)
    handler = CommandHandler(sqlite_database, 100)
    reader = Principal("telegram", "12345", frozenset({"read"}), is_paired=True)
    handler.reply(reader, "/cancel 0199d2c4")
    handler.answer(reader, "0199d2c4", {"decision": "approve"})
    handler.reply(Principal("telegram", "666", frozenset(SCOPES)), "/cancel 0199d2c4")
    lines = _lines(tmp_path)
    assert [(line["who"], line["what"]) for line in lines] == [
        ("telegram:12345", "cancel"),
        ("telegram:12345", "answer"),
    ]
    assert all("needs the scope" in line["outcome"] for line in lines)


ASKING = """\
name: asking
steps:
  code: {input: {message: "Which code?", schema: {type: string, maxLength: 5}}}
"""


def test_an_answer_that_does_not_fit_is_not_repeated(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """The reason why it was refused quotes it; the audit log leaves that out."""
    principal = Principal("telegram", "12345", frozenset(SCOPES), is_paired=True)
    with Running(sqlite_database, tmp_path) as running, running.client() as client:
        audit.configure(running.home)
        running.add_workflow(ASKING)
        client.post("/api/v1/workflows/asking/tasks")
        deadline = time.monotonic() + 30
        while not (found := client.get("/api/v1/approvals").json()["approvals"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        address = f"/api/v1/approvals/{found[0]['id']}/answer"
        refused = client.post(address, json={"value": "private-code"})
        assert "private-code" in refused.json()["detail"]
        said = CommandHandler(sqlite_database, 100).reply(
            principal, f"/answer {found[0]['id']} private-code"
        )
        assert "private-code" in said
    lines = _lines(running.home)
    assert [line["outcome"] for line in lines] == [audit.INVALID, audit.INVALID]
    assert "private-code" not in json.dumps(lines)


def test_a_line_hides_nothing(tmp_path: Path) -> None:
    """Characters that steer a terminal are written as escapes, and read back as they were."""
    audit.configure(tmp_path)
    audit.record("api:x", "test", "signal", "done", name="a\u202eb\x9b2Jc\ud800")
    assert (tmp_path / audit.NAME).read_bytes().isascii()
    (line,) = _lines(tmp_path)
    assert line["name"] == "a\u202eb\x9b2Jc\ud800"


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    """Where the room ends inside of a line, the line after it is still whole."""
    audit.configure(tmp_path)
    audit.record("api:x", "test", "first", "done")
    size = (tmp_path / audit.NAME).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
    try:
        audit.record("api:x", "test", "second", "done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    audit.record("api:x", "test", "third", "done")
    assert [line["what"] for line in _lines(tmp_path)] == ["first", "third"]


def _write_many(home: Path, name: str) -> None:
    audit.configure(home)
    for number in range(200):
        audit.record(name, "test", "command", "done", number=number)


def test_many_processes_write_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of several processes are whole, and a full file is put away once."""
    monkeypatch.setattr(audit, "MOST_BYTES", 50_000)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path, f"w{n}")) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = _lines(tmp_path)
    older = (tmp_path / f"{audit.NAME}.1").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["what"] for line in older} == {"command"}
    # 800 lines of about 100 bytes: one file was put away, and none of its lines is lost.
    assert len(found) + len(older) == 800
    assert (tmp_path / audit.NAME).stat().st_size < 50_000


def test_a_full_disk_fails_no_command(tmp_path: Path) -> None:
    """What cannot be written is no reason to refuse what was done."""
    (tmp_path / audit.NAME).mkdir()
    audit.configure(tmp_path)
    with audit.recorded("terminal:x", "test", "pause"):
        pass
