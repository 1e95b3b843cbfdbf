"""Messages of a mailbox that a step moves, labels and flags."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from agent.core.state_machine import CallStatus
from agent.steps.attempt.services import Limits
from agent.steps.mail import message_changes
from agent.steps.mail.imap_connection import ImapConnection
from agent.steps.types.outcome import Failed, Question, Retry, Succeeded, Waiting
from tests.support.attempt import Trial, run
from tests.support.imap_server import PASSWORD, ImapServer, imap_server
from tests.support.mail_steps import LOOPBACK, imap_of
from tests.support.smtp_server import account


@pytest.fixture(scope="module")
def server() -> Iterator[ImapServer]:
    """Run one mailbox for all tests here."""
    with imap_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


@pytest.fixture
def inbox(server: ImapServer) -> str:
    """Return an empty folder, and make one called as it with `-done` at the end."""
    name = f"in-{uuid4().hex[:8]}"
    with server.account() as box:
        box.folder.create(name)
        box.folder.create(f"{name}-done")
    return name


def delivered(
    server: ImapServer, folder: str, message_id: str = "<1@example.org>"
) -> dict[str, Any]:
    """Deliver a message; return it as a watcher shows it."""
    text = f"Message-ID: {message_id}\r\nFrom: bob@example.org\r\nSubject: Hi\r\n\r\nHello.\r\n"
    server.deliver(text.encode(), folder=folder)
    return {"message_id": message_id, "folder": folder, "uid": 1, "subject": "Hi", "text": "Hello."}


def changing(server: ImapServer, item: dict[str, Any], **keys: Any) -> Trial:
    """Return a step that changes a mail."""
    options = keys.pop("options", {})
    trial = Trial(
        "mailbox", {"mail": item, **keys}, options=options, limits=Limits(allow_private=LOOPBACK)
    )
    trial.services.mail = {"main": account(1, imap=imap_of(server))}
    return trial


def contents(server: ImapServer, folder: str) -> dict[str, set[str]]:
    """Return the flags of the messages of a folder, by their ids."""
    with server.account() as box:
        box.folder.set(folder, readonly=True)
        return {
            each.headers["message-id"][0]: set(each.flags) - {"\\Recent"}
            for each in box.fetch(mark_seen=False)
        }


def test_a_mail_is_flagged_and_moved(server: ImapServer, inbox: str) -> None:
    """The output says where it is now, so that a later step can find it."""
    item = delivered(server, inbox)
    delivered(server, inbox, "<2@example.org>")
    done = f"{inbox}-done"
    outcome = run(changing(server, item, flag=["seen", "flagged"], move=done).attempt())
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.output == {"message_id": item["message_id"], "folder": done, "account": "main"}
    assert contents(server, inbox) == {"<2@example.org>": set()}
    assert contents(server, done) == {item["message_id"]: {"\\Seen", "\\Flagged"}}
    again = changing(server, {**item, **outcome.output}, unflag="seen")
    assert isinstance(run(again.attempt()), Succeeded)
    assert contents(server, done) == {item["message_id"]: {"\\Flagged"}}


@pytest.mark.parametrize("capable", [True, False], ids=["move", "copy"])
def test_an_unknown_change_is_made_again(
    server: ImapServer, inbox: str, monkeypatch: pytest.MonkeyPatch, capable: bool
) -> None:
    """An attempt that lost its connection in between leaves one message, in the folder it goes to."""
    if not capable:
        known = ImapConnection.has_capability
        monkeypatch.setattr(
            ImapConnection,
            "has_capability",
            lambda self, name: name != "MOVE" and known(self, name),
        )
    item = delivered(server, inbox)
    trial = changing(server, item, move=f"{inbox}-done")
    real, calls = message_changes._command, []

    def lost(*arguments: Any) -> list[Any]:
        lines = real(*arguments)
        calls.append(arguments[1])
        if len(calls) == 1:
            raise TimeoutError
        return lines

    monkeypatch.setattr(message_changes, "_command", lost)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    trial.pass_expiry()
    assert isinstance(run(trial.attempt()), Succeeded)
    assert trial.journal.statuses[-1] == CallStatus.SUCCEEDED
    assert contents(server, inbox) == {}
    assert contents(server, f"{inbox}-done") == {item["message_id"]: set()}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"move": "nowhere"}, "refused MOVE"),
        ({"label": "two words"}, "takes labels of letters"),
        ({"mail": {"message_id": "<none@example.org>"}, "flag": "seen"}, "has no message <none"),
        ({"mail": {"message_id": '<1"@example.org>'}, "flag": "seen"}, "has no message <1"),
        ({"mail": {"folder": "no-such-folder"}, "flag": "seen"}, "cannot be opened"),
        ({"mail": {"message_id": None}, "flag": "seen"}, "has no Message-ID"),
        ({}, "give move, label"),
    ],
)
def test_what_cannot_be_done_is_final(
    server: ImapServer, inbox: str, change: dict[str, Any], expected: str
) -> None:
    """The step fails at once, and says why."""
    item = {**delivered(server, inbox), **change.pop("mail", {})}
    outcome = run(changing(server, item, **change).attempt())
    assert isinstance(outcome, Failed), outcome
    assert expected in outcome.error.message


def test_labels_of_gmail(server: ImapServer, inbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gmail has its own command for labels, which may be any text."""
    commands: list[tuple[Any, ...]] = []
    known = ImapConnection.has_capability
    monkeypatch.setattr(
        ImapConnection,
        "has_capability",
        lambda self, name: name == "X-GM-EXT-1" or known(self, name),
    )

    def sent(_: ImapConnection, *command: Any) -> list[Any]:
        commands.append(command)
        return []

    monkeypatch.setattr(message_changes, "_command", sent)
    item = delivered(server, inbox)
    trial = changing(server, item, label=["To pay", 'a"b'], unlabel="Grün")
    assert isinstance(run(trial.attempt()), Succeeded)
    assert [(each[2], each[3]) for each in commands] == [
        ("+X-GM-LABELS", b'("To pay" "a\\"b")'),
        ("-X-GM-LABELS", b'("Gr&APw-n")'),
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_labels_are_keywords_elsewhere(
    server: ImapServer, inbox: str, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Whether the server keeps them is looked up: some accept and forget them."""
    commands: list[tuple[Any, ...]] = []

    def sent(_: ImapConnection, *command: Any) -> list[Any]:
        commands.append(command)
        return [b"1 (UID 1 FLAGS (\\Seen invoice))" if kept else b"1 (UID 1 FLAGS (\\Seen))"]

    monkeypatch.setattr(message_changes, "_command", sent)
    item = delivered(server, inbox)
    outcome = run(changing(server, item, flag="seen", label="Invoice", unlabel="new").attempt())
    assert isinstance(outcome, Succeeded if kept else Failed), outcome
    assert [each[2:] for each in commands] == [
        ("+FLAGS", b"(\\Seen Invoice)"),
        ("-FLAGS", b"(new)"),
        ("(FLAGS)",),
    ]


def test_a_question_shows_the_mail(server: ImapServer, inbox: str) -> None:
    """An approval covers what is done; the mail stands below the question."""
    gate = {"approval": {"message": "File it?"}}
    trial = changing(server, delivered(server, inbox), move="Archive", options=gate)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Waiting)
    assert isinstance(outcome.on, Question)
    assert outcome.on.request["config"]["mail"] == {
        "message_id": "<1@example.org>",
        "folder": inbox,
    }
    assert outcome.on.message == "File it?\n\nThe mail:\n```\n> Subject: Hi\n>\n> Hello.\n```"
