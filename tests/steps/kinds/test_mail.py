import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.state_machine import CallStatus
from agent.steps.types.outcome import Failed, Outcome, Question, Retry, Succeeded, Waiting
from tests.support.attempt import run
from tests.support.mail_steps import mail_step
from tests.support.smtp_server import (
    PASSWORD,
    TLS_DIRECTORY,
    USER,
    SmtpServer,
    account,
    server_certificate,
    smtp_server,
)


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


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


def send(*arguments: Any, **keys: Any) -> Outcome:
    """Run the first attempt of a step."""
    return run(mail_step(*arguments, **keys).attempt())


def output_of(outcome: Outcome) -> dict[str, Any]:
    """Return the output of a step that succeeded."""
    assert isinstance(outcome, Succeeded), outcome
    assert isinstance(outcome.output, dict)
    return outcome.output


def failed(outcome: Outcome, code: str) -> str:
    """Check that a step failed for good; return the message."""
    assert isinstance(outcome, Failed), outcome
    assert outcome.error.code == code
    return outcome.error.message


def retried(outcome: Outcome, code: str) -> Retry:
    """Check that nothing was sent, and that another attempt follows."""
    assert isinstance(outcome, Retry), outcome
    assert outcome.error.code == code
    assert not outcome.is_unknown
    return outcome


def test_a_mail_arrives(server: SmtpServer) -> None:
    """Its output names the recipients, the subject, the size and the id."""
    outcome = send(
        server, to=["Bob <bob@example.org>"], cc="carl@example.org", bcc=["dora@example.org"]
    )
    (received,) = server.received
    assert server.logins == [USER]
    assert received.sender == "ann@example.org"
    assert received.recipients == ["bob@example.org", "carl@example.org", "dora@example.org"]
    message = received.message
    assert (message["From"], message["To"]) == ("Ann <ann@example.org>", "Bob <bob@example.org>")
    assert message["Cc"] == "carl@example.org"
    assert "dora" not in received.raw.decode()
    assert message.get_content() == "How are you?\r\n"
    output = output_of(outcome)
    assert output["message_id"] == message["Message-ID"]
    assert output["accepted"] == received.recipients
    assert output["refused"] == []
    assert output["subject"] == "Hello"
    assert output["size"] == len(received.raw)
    assert output["bcc"] == ["dora@example.org"]


@pytest.mark.parametrize("tls", ["implicit", "starttls"])
def test_tls_with_a_certificate_of_a_known_authority(
    tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SSL_CERT_FILE` names the authority of a private mail server, and its absence refuses it."""
    certificate = server_certificate()
    options = {"implicit_tls": certificate} if tls == "implicit" else {"tls_context": certificate}
    with smtp_server(**options) as server:
        settings = {"host": "localhost", "tls": tls}
        message = failed(send(server, settings=settings), "mail_tls")
        assert "the certificate of localhost is not valid" in message
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS_DIRECTORY / "authority.pem"))
        output_of(send(server, settings=settings))
        message = failed(send(server, settings={"tls": tls}), "mail_tls")
        assert "the certificate of 127.0.0.1 is not valid" in message
        assert len(server.received) == 1


def test_a_server_without_tls_gets_no_password(server: SmtpServer) -> None:
    """Neither of the encrypted ways falls back to a plain connection."""
    message = failed(send(server, settings={"tls": "starttls"}), "mail_tls")
    assert "has no STARTTLS" in message
    message = failed(send(server, settings={"tls": "implicit"}), "mail_tls")
    assert "check `port` and `tls`" in message
    assert server.logins == []


def test_a_plain_connection_stays_on_this_machine(server: SmtpServer) -> None:
    """A private address that is not allowed is refused, and so is this machine itself."""
    message = failed(
        send(server, settings={"host": "192.88.99.200"}, limits={"allow_private": ()}),
        "address_refused",
    )
    assert "not a public address" in message
    message = failed(send(server, limits={"allow_private": ()}), "address_refused")
    assert "`http.allow_private`" in message


def test_a_wrong_password_is_final(server: SmtpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the account; one wrong login is made, since servers count them."""
    monkeypatch.setenv("MAIL_PASSWORD", "wrong horse")
    message = failed(send(server), "mail_login")
    assert "[mail.main]" in message
    assert "wrong horse" not in message
    assert server.logins == [USER]


def test_a_missing_password_is_final(server: SmtpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the account and the variable."""
    monkeypatch.delenv("MAIL_PASSWORD")
    message = failed(send(server), "secret_missing")
    assert "password of [mail.main]" in message
    assert "MAIL_PASSWORD" in message


def test_a_login_that_fails_for_now_is_retried(server: SmtpServer) -> None:
    """454 says that the server cannot check the password at the moment."""
    server.behaviour.login = "454 4.7.0 temporary authentication failure"
    retried(send(server), "status_454")


def test_an_account_without_login(server: SmtpServer) -> None:
    """A relay in the own network may need none."""
    output_of(send(server, settings={"user": "", "password": ""}))
    assert server.logins == []


def test_greylisting_is_retried_later(server: SmtpServer) -> None:
    """A temporary refusal of every recipient is a definite failure with a delay."""
    server.behaviour.recipients["bob@example.org"] = "450 4.2.0 greylisted"
    trial = mail_step(server)
    first = retried(run(trial.attempt()), "recipients_refused")
    assert first.delay_seconds == 300
    assert "450 4.2.0 greylisted" in first.error.message
    server.behaviour.recipients.clear()
    output_of(run(trial.attempt()))
    assert trial.journal.statuses == [CallStatus.FAILED, CallStatus.SUCCEEDED]
    assert len(server.received) == 1


def test_a_temporary_refusal_of_the_message_is_retried(server: SmtpServer) -> None:
    """4xx as the reply to the end of DATA means that the mail was not accepted."""
    server.behaviour.data = ["451 4.3.0 try again"]
    outcome = retried(send(server), "status_451")
    assert outcome.delay_seconds == 300
    assert server.received == []


def test_a_refusal_of_the_message_is_final(server: SmtpServer) -> None:
    """5xx as the reply to the end of DATA is never sent again."""
    server.behaviour.data = ["554 5.7.1 spam"]
    trial = mail_step(server)
    assert "554 5.7.1 spam" in failed(run(trial.attempt()), "status_554")
    failed(run(trial.attempt()), "status_554")
    assert len(trial.journal.intents) == 1


def test_a_refused_sender_is_final(server: SmtpServer) -> None:
    """The server may not let the account send for this address."""
    server.behaviour.sender = "553 5.7.1 not yours"
    assert "refused the sender: 553 5.7.1 not yours" in failed(send(server), "status_553")


def test_refused_recipients_are_listed(server: SmtpServer) -> None:
    """The others get the mail, and the output says who does not."""
    server.behaviour.recipients["carl@example.org"] = "550 5.1.1 unknown"
    trial = mail_step(server, cc="carl@example.org")
    output = output_of(run(trial.attempt()))
    assert output["accepted"] == ["bob@example.org"]
    assert output["refused"] == [{"address": "carl@example.org", "reply": "550 5.1.1 unknown"}]
    assert "carl@example.org was refused" in trial.journal.log_text
    assert len(server.received) == 1


def test_on_refused_fail_sends_to_no_one(server: SmtpServer) -> None:
    """A step that wants all or nothing stops before the message is sent."""
    server.behaviour.recipients["carl@example.org"] = "550 5.1.1 unknown"
    message = failed(send(server, cc="carl@example.org", on_refused="fail"), "recipients_refused")
    assert "the mail was not sent (carl@example.org: 550 5.1.1 unknown)" in message
    assert server.received == []


def test_all_recipients_refused_is_final(server: SmtpServer) -> None:
    """A mail that goes to no one has failed."""
    server.behaviour.recipients["bob@example.org"] = "550 5.1.1 unknown"
    failed(send(server), "recipients_refused")
    assert server.received == []


def test_a_recipient_refused_for_now_waits_with_the_others(server: SmtpServer) -> None:
    """While attempts are left, all are tried again; the last attempt sends to those it can."""
    server.behaviour.recipients["carl@example.org"] = "450 4.2.0 greylisted"
    trial = mail_step(server, cc="carl@example.org")
    for _ in range(2):
        retried(run(trial.attempt()), "recipients_refused")
        assert server.received == []
    output = output_of(run(trial.attempt()))
    assert output["accepted"] == ["bob@example.org"]
    assert len(output["refused"]) == 1
    assert len(server.received) == 1


@pytest.mark.parametrize("when", ["mail", "before"])
def test_a_session_that_breaks_before_the_end_is_a_definite_failure(
    server: SmtpServer, when: str
) -> None:
    """Until the last byte of DATA is written nothing was accepted: the mail is sent again."""
    server.behaviour.disconnect = when
    # More than the buffers of both sides hold, so that its end is not written either.
    trial = mail_step(server, text=("x" * 70 + "\n") * 60_000 if when == "before" else "x")
    retried(run(trial.attempt()), "transport")
    server.behaviour.disconnect = None
    trial.config["text"] = "short"
    output_of(run(trial.attempt()))
    assert len(server.received) == 1


def test_a_server_that_is_not_there_is_retried() -> None:
    """A refused connection and a name without an address are definite failures."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = retried(send(taken.getsockname()[1]), "refused")
    assert "the connection to 127.0.0.1 failed: Connection refused" in outcome.error.message
    outcome = retried(send(25, settings={"host": "mail.invalid"}), "dns")
    assert "mail.invalid cannot be resolved" in outcome.error.message


def test_a_server_that_never_greets_is_a_definite_timeout() -> None:
    """A silent server before DATA cannot have accepted anything."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        outcome = send(silent.getsockname()[1], options={"timeout_seconds": 3.0})
    assert "did not answer in time" in retried(outcome, "timeout").error.message


def test_a_mail_larger_than_the_server_takes_is_final() -> None:
    """The limit that the server announces is checked before anything is sent."""
    with smtp_server(data_size_limit=2000) as server:
        message = failed(send(server, text="x " * 2000), "mail_too_large")
        assert "takes at most 2,000" in message
        assert server.received == []
        server.behaviour.data = ["552 5.3.4 too big"]
        failed(send(server), "mail_too_large")


def test_international_addresses_need_a_server_that_takes_them(server: SmtpServer) -> None:
    """A name before the @ beyond ASCII goes out as UTF-8, and is refused by other servers."""
    keys = {"to": "Jörg <jörg@bücher.example>", "subject": "Grüße"}
    output_of(send(server, **keys))
    (received,) = server.received
    assert received.recipients == ["jörg@xn--bcher-kva.example"]
    assert "SMTPUTF8" in received.options
    assert "<jörg@xn--bcher-kva.example>".encode() in received.raw
    with smtp_server(enable_SMTPUTF8=False) as plain:
        failed(send(plain, **keys), "mail_international")


def test_the_sender_is_an_address_of_the_account(server: SmtpServer) -> None:
    """`from` may choose among them, and no other."""
    settings = {"also_from": ["Office <office@example.org>"]}
    output_of(send(server, settings=settings, **{"from": "OFFICE@example.org"}))
    assert server.received[0].message["From"] == "Office <office@example.org>"
    message = failed(send(server, **{"from": "eve@example.org"}), "bad_mail")
    assert "eve@example.org is not an address of the account" in message


def test_the_account_is_the_only_one_or_named(server: SmtpServer) -> None:
    """With several accounts a step names one; a name that does not exist is refused."""
    trial = mail_step(server)
    trial.services.mail = {}
    assert "add [mail.NAME]" in failed(run(trial.attempt()), "bad_mail")
    both = {"main": account(server.port), "other": account(server.port)}
    trial = mail_step(server)
    trial.services.mail = both
    assert "name one of them: main, other" in failed(run(trial.attempt()), "bad_mail")
    trial = mail_step(server, account="othr")
    trial.services.mail = both
    assert "did you mean 'other'?" in failed(run(trial.attempt()), "bad_mail")
    trial = mail_step(server, account="other")
    trial.services.mail = both
    assert output_of(run(trial.attempt()))["account"] == "other"


def test_files_and_values_are_attached(server: SmtpServer, tmp_path: Path) -> None:
    """A file comes from an allowed directory, a value from the task; nothing from elsewhere."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "Ä.csv").write_bytes("a;ä\n".encode())
    (tmp_path / "secret").write_text("no")
    (tmp_path / "out" / "link").symlink_to(tmp_path / "secret")
    limits = {"attach_from": (str(tmp_path / "out"),)}
    attach = ["Ä.csv", {"name": "report.json", "value": {"total": 3}}]
    output_of(send(server, limits=limits, attach=attach))
    parts = list(server.received[0].message.iter_attachments())
    assert [part.get_filename() for part in parts] == ["Ä.csv", "report.json"]
    assert parts[0].get_content() == "a;ä\n"
    assert parts[1].get_content() == b'{\n "total": 3\n}'
    for path in ("../secret", str(tmp_path / "secret"), "link", "missing.pdf"):
        failed(send(server, limits=limits, attach=path), "bad_attachment")
    assert "attach_from in [steps]" in failed(send(server, attach="Ä.csv"), "bad_attachment")
    assert len(server.received) == 1


def test_an_approver_sees_whom_an_answer_goes_to(server: SmtpServer) -> None:
    """Recipients and subject are written out; the question shows the mail, and the request what is used."""
    item = {
        "message_id": "<1@example.org>",
        "from": {"name": "", "address": "bob@example.org"},
        "subject": "Lunch",
        "text": "a long text",
    }
    trial = mail_step(
        server,
        to=None,
        subject=None,
        reply_to_mail="{{ trigger }}",
        options={"approval": {"message": "Send?", "editable": ["text"]}},
    )
    trial.task = {"trigger": item}
    outcome = run(trial.attempt())
    assert isinstance(outcome, Waiting)
    assert isinstance(outcome.on, Question)
    config = outcome.on.request["config"]
    assert config["to"] == ["bob@example.org"]
    assert config["subject"] == "Re: Lunch"
    assert outcome.on.message.startswith("Send?\n\nThe mail that is answered:\n")
    assert "> From: bob@example.org\n> Subject: Lunch\n>\n> a long text\n" in outcome.on.message
    assert "a long text" not in str(outcome.on.request)
    assert server.received == []


def test_an_answer_stands_in_the_thread(server: SmtpServer) -> None:
    """It names the answered mail, and says that a program wrote it."""
    item = {
        "message_id": "<2@example.org>",
        "references": ["<1@example.org>"],
        "from": {"name": "Bob", "address": "bob@example.org"},
        "reply_to": [{"name": "", "address": "office@example.org"}],
        "subject": "Re: Lunch",
    }
    output_of(send(server, to=None, subject=None, reply_to_mail=item))
    (received,) = server.received
    message = received.message
    assert received.recipients == ["office@example.org"]
    assert message["In-Reply-To"] == "<2@example.org>"
    assert message["References"].split() == ["<1@example.org>", "<2@example.org>"]
    assert message["Subject"] == "Re: Lunch"
    assert message["Auto-Submitted"] == "auto-replied"


def test_the_subject_that_was_approved_is_the_one_that_arrives(server: SmtpServer) -> None:
    """The subject of a hostile mail adds neither a recipient nor a text to the answer."""
    subject = "=?utf-8?q?Hi=0d=0aBcc:_eve=40example.org=0d=0a=0d=0aAn_evil_text?="
    item = {"from": {"name": subject, "address": "bob@example.org"}, "subject": subject}
    approved = output_of(send(server, to=None, subject=None, reply_to_mail=item))
    (received,) = server.received
    assert approved["subject"] == f"Re: {subject}" == received.message["Subject"]
    assert received.recipients == ["bob@example.org"]
    assert "Bcc" not in received.message
    assert "evil" not in received.message.get_content()


def test_a_missing_library_is_named(server: SmtpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "aiosmtplib", None)
    message = failed(send(server), "library_missing")
    assert "`python -m pip install aiosmtplib`" in message
