"""A mail whose result was never recorded: the same id when it is sent again, and reconciliation."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from agent.core.state_machine import CallStatus
from agent.core.waits import UnknownCall
from agent.steps.types.outcome import Retry, Succeeded, Waiting
from tests.support.attempt import Trial, run
from tests.support.imap_server import ImapServer, imap_server, message
from tests.support.mail_steps import imap_of, mail_step, sent_ids
from tests.support.smtp_server import PASSWORD, Received, SmtpServer, smtp_server

UNKNOWN, SUCCEEDED, FAILED = CallStatus.UNKNOWN, CallStatus.SUCCEEDED, CallStatus.FAILED


@pytest.fixture(scope="module")
def running() -> Iterator[SmtpServer]:
    """Run one server for all tests here."""
    with smtp_server() as server:
        yield server


@pytest.fixture
def server(running: SmtpServer) -> SmtpServer:
    """Return the server, which behaves well and has got nothing."""
    running.reset()
    return running


@pytest.fixture(scope="module")
def imap() -> Iterator[ImapServer]:
    """Run one mailbox for all tests here."""
    with imap_server() as server:
        yield server


@pytest.fixture
def folder(imap: ImapServer) -> str:
    """Return an empty folder for sent mail."""
    name = f"Sent-{uuid4().hex[:8]}"
    with imap.account() as box:
        box.folder.create(name)
    return name


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


def lose(trial: Trial, server: SmtpServer, disconnect: str = "after") -> None:
    """Let the first send break after the end of DATA was written, and its time pass."""
    server.behaviour.disconnect = disconnect
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    assert trial.journal.statuses == [UNKNOWN]
    server.behaviour.disconnect = None
    trial.pass_expiry()


def is_asked(trial: Trial) -> bool:
    """Run the next attempt; return whether a person is asked about the unknown mail."""
    outcome = run(trial.attempt())
    return isinstance(outcome, Waiting) and isinstance(outcome.on, UnknownCall)


def file_sent_mail(imap: ImapServer, folder: str, server: SmtpServer) -> None:
    """Let the server file what is sent, as some providers do."""

    def file(received: Received) -> None:
        imap.deliver(received.raw, folder=folder)

    server.on_received = file


def test_a_disconnect_after_the_end_of_data_asks(server: SmtpServer) -> None:
    """Only the server knows whether it accepted the mail: nothing is sent again by itself."""
    trial = mail_step(server)
    lose(trial, server)
    assert is_asked(trial)
    assert len(server.received) == 1
    assert len(trial.journal.intents) == 1
    assert trial.journal.intents[0][1].on_unknown == "ask"


def test_a_silent_server_after_the_end_of_data_asks(server: SmtpServer) -> None:
    """A timeout there says as little as a broken connection."""
    trial = mail_step(server, options={"timeout_seconds": 1.5})
    lose(trial, server, "silent")
    assert is_asked(trial)


def test_a_repeated_mail_has_the_same_id(server: SmtpServer) -> None:
    """`on_unknown: retry` sends the same mail again: many servers show it once."""
    trial = mail_step(server, options={"on_unknown": "retry"})
    lose(trial, server)
    assert isinstance(run(trial.attempt()), Succeeded)
    first, second = server.ids
    assert first == second
    assert first == f"<{trial.journal.intents[0][1].remote_key}@example.org>"
    other = mail_step(server, text="Something else.\n")
    run(other.attempt())
    assert server.ids[2] != first


def test_a_mail_in_the_sent_folder_was_sent(
    server: SmtpServer, imap: ImapServer, folder: str
) -> None:
    """With a mailbox the default is to look there: found means applied, and nothing is repeated."""
    file_sent_mail(imap, folder, server)
    trial = mail_step(server, settings={"imap": imap_of(imap, folder=folder)})
    lose(trial, server)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["reconciled"] is True
    assert outcome.output["message_id"] == server.ids[0]
    assert outcome.output["accepted"] == ["bob@example.org"]
    assert trial.journal.statuses == [SUCCEEDED]
    assert len(server.received) == 1


def test_a_mail_that_is_not_in_the_sent_folder_asks(
    server: SmtpServer, imap: ImapServer, folder: str
) -> None:
    """Not found proves nothing: many servers save sent mail late, or not at all."""
    imap.deliver(message("another"), folder=folder)
    trial = mail_step(server, settings={"imap": imap_of(imap, folder=folder)})
    lose(trial, server)
    assert is_asked(trial)
    assert trial.journal.statuses == [UNKNOWN]
    assert len(server.received) == 1
    assert "It may have been sent all the same" in trial.journal.log_text


def test_a_mailbox_that_cannot_be_reached_asks(
    server: SmtpServer, imap: ImapServer, folder: str
) -> None:
    """A failed search is no answer, and the log says why it failed."""
    imap_keys = imap_of(imap, folder="No such folder")
    trial = mail_step(server, settings={"imap": imap_keys})
    lose(trial, server)
    assert is_asked(trial)
    assert "the folder 'No such folder'" in trial.journal.log_text


def test_a_copy_is_saved(server: SmtpServer, imap: ImapServer, folder: str) -> None:
    """`save_sent` adds what was sent to the folder, once."""
    trial = mail_step(server, settings={"imap": imap_of(imap, folder=folder)}, save_sent=True)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["saved"] is True
    assert sent_ids(imap, folder) == server.ids


def test_a_copy_that_the_server_made_is_not_doubled(
    server: SmtpServer, imap: ImapServer, folder: str
) -> None:
    """Some providers file sent mail themselves."""
    file_sent_mail(imap, folder, server)
    trial = mail_step(server, settings={"imap": imap_of(imap, folder=folder)}, save_sent=True)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["saved"] is True
    assert sent_ids(imap, folder) == server.ids


def test_a_copy_that_cannot_be_saved_is_reported(server: SmtpServer, imap: ImapServer) -> None:
    """The mail was sent: the step succeeds, and says what is missing."""
    trial = mail_step(
        server, settings={"imap": imap_of(imap, folder="No such folder")}, save_sent=True
    )
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["saved"] is False
    assert "the folder 'No such folder'" in outcome.output["save_problem"]
    assert len(server.received) == 1
    without = mail_step(server, save_sent=True)
    outcome = run(without.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["save_problem"] == "[mail.main.imap] is missing"


def test_a_crash_while_the_copy_is_saved_does_not_send_again(
    server: SmtpServer, imap: ImapServer, folder: str
) -> None:
    """The sending is on record; the next attempt saves the copy, also one after the last."""
    settings = {"imap": imap_of(imap, folder=folder)}
    trial = mail_step(server, settings=settings, save_sent=True)
    run(trial.attempt())
    with imap.account() as box:
        box.folder.set(folder)
        box.delete(box.uids())
    # As if the worker had died after the intent of the copy: its result is not on record.
    del trial.journal.results[1:]
    trial.crash()
    trial.pass_expiry()
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["saved"] is True
    assert sent_ids(imap, folder) == server.ids
    assert len(server.received) == 1
    del trial.journal.results[1:]
    trial.attempt_number = 4
    trial.pass_expiry()
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["saved"] is False
    assert len(server.received) == 1
