"""Mail for people: what `validate`, `doctor` and `show` say of it."""

from tests.support.cli import Cli
from tests.support.smtp_server import PASSWORD, smtp_server

CONFIG = """\
[http]
allow_private = ["127.0.0.1"]

[mail.work]
host = "127.0.0.1"
port = PORT
tls = "none"
user = "ann@example.org"
password = "env:TEST_MAIL_PASSWORD"
from = "Ann <ann@example.org>"
"""
WORKFLOW = """\
name: greets
steps:
  greet:
    mail:
      to: [Bob <bob@example.org>, carl@example.org]
      subject: Hello
      text: How are you?
"""


def test_a_mail_is_sent_and_shown(cli: Cli) -> None:
    """`show` names the recipients, the subject and the size, and no password."""
    cli.environment["TEST_MAIL_PASSWORD"] = PASSWORD
    cli.write("greets.yaml", WORKFLOW)
    with smtp_server() as server:
        server.behaviour.recipients["carl@example.org"] = "550 5.1.1 unknown"
        cli.write("config.toml", CONFIG.replace("PORT", str(server.port)))
        cli("run", "greets.yaml", "--wait")
        (received,) = server.received
    (task,) = cli("tasks", "--json").json
    shown = cli("show", task["id"], "greet").out
    assert 'to: ["Bob <bob@example.org>", "carl@example.org"]' in shown
    assert "subject: Hello" in shown
    assert f"→ sent to bob@example.org as {received.message['Message-ID']}" in shown
    assert f"{len(received.raw):,} bytes" in shown
    assert "→ carl@example.org was refused: 550 5.1.1 unknown" in shown
    assert PASSWORD not in shown


def test_doctor_finds_what_an_account_lacks(cli: Cli) -> None:
    """A missing secret, a wrong address, and steps that name no account; no server is asked."""
    config = CONFIG.replace("PORT", "1")
    cli.write("config.toml", config + 'also_from = ["no one at all@x"]\n')
    cli.write("workflows/greets.yaml", WORKFLOW.replace("subject:", "account: wrk\n      subject:"))
    found = cli("doctor", "--json", code=5).json["findings"]
    messages = [each["message"] for each in found if each["what"].startswith("mail")]
    assert any("TEST_MAIL_PASSWORD" in message for message in messages)
    assert any("is not an address" in message for message in messages)
    assert any("names the account 'wrk', which is missing (work)" in each for each in messages)
    cli.environment["TEST_MAIL_PASSWORD"] = PASSWORD
    cli.write("config.toml", config)
    cli.write("workflows/greets.yaml", WORKFLOW)
    found = cli("doctor", "--json", code=5).json["findings"]
    (finding,) = [each for each in found if each["what"].startswith("mail")]
    assert (finding["what"], finding["state"]) == ("mail work", "ok")


def test_doctor_finds_a_mailbox_that_no_account_has(cli: Cli) -> None:
    """A step that files mail needs the imap section of its account."""
    cli.environment["TEST_MAIL_PASSWORD"] = PASSWORD
    cli.write("config.toml", CONFIG.replace("PORT", "1"))
    step = "{mail: {message_id: <1@x>}, move: Done}"
    cli.write("workflows/files.yaml", f"name: files\nsteps: {{file: {{mailbox: {step}}}}}\n")
    found = cli("doctor", "--json", code=5).json["findings"]
    assert any("step file of files needs [mail.work.imap]" in each["message"] for each in found)


def test_validate_names_bad_keys_and_addresses(cli: Cli) -> None:
    """Every problem is reported at once, with its line."""
    cli.write(
        "bad.yaml",
        "name: bad\nsteps:\n  greet:\n    mail:\n      to: bob\n      sbject: Hello\n"
        "      text: Hi\n      headers: {Bcc: eve@example.org}\n      cc: '{{ inputs.cc }}'\n"
        "inputs: {cc: string}\n",
    )
    shown = cli("validate", "bad.yaml", code=2).out
    assert "'bob' is not an address such as ann@example.org" in shown
    assert "did you mean 'subject'?" in shown
    assert "bad.yaml:5" in shown
    assert "cc" not in shown.replace("account", "")


def test_a_password_in_the_configuration_is_not_repeated(cli: Cli) -> None:
    """It must be a reference; the message does not show what was written."""
    text = CONFIG.replace("PORT", "1").replace("env:TEST_MAIL_PASSWORD", "hunter2hunter2")
    cli.write("config.toml", text + "tsl = 1\n\n[mail.work.imap]\nhost = 'x'\nfoldr = 'y'\n")
    result = cli("doctor", code=2)
    shown = result.out + result.err
    assert "must say where the password is" in shown
    assert "hunter2" not in shown
    assert "mail.work.tsl: there is no such key; did you mean 'tls'?" in shown
    assert "mail.work.imap.foldr: there is no such key; did you mean 'folder'?" in shown
