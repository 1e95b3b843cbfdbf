"""A `mail` step in tests: its trial, its servers, and what they hold."""

from typing import Any

from agent.steps.attempt.services import Limits
from tests.support.attempt import Trial
from tests.support.imap_server import ImapServer
from tests.support.smtp_server import SmtpServer, account

LOOPBACK = ("127.0.0.0/8", "::1/128")


def mail_step(
    server: SmtpServer | int,
    imap: ImapServer | None = None,
    settings: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **keys: Any,
) -> Trial:
    """Return a step that sends a mail to Bob; `keys` are the step's, `settings` the account's."""
    config = {"to": "bob@example.org", "subject": "Hello", "text": "How are you?\n", **keys}
    config = {key: value for key, value in config.items() if value is not None}
    allowed = {"allow_private": LOOPBACK, **(limits or {})}
    trial = Trial("mail", config, options=options or {}, limits=Limits(**allowed))
    port = server if isinstance(server, int) else server.port
    mailbox = {} if imap is None else {"imap": imap_of(imap)}
    trial.services.mail = {"main": account(port, **mailbox, **(settings or {}))}
    return trial


def imap_of(server: ImapServer, **changed: Any) -> dict[str, Any]:
    """Return the `imap` section of an account whose mailbox is on this server."""
    return {"host": "127.0.0.1", "port": server.port, "tls": "none", "folder": "Sent", **changed}


def sent_ids(server: ImapServer, folder: str = "Sent") -> list[str]:
    """Return the ids of the messages in the folder of sent mail."""
    with server.account() as box:
        box.folder.set(folder, readonly=True)
        return [each.headers["message-id"][0] for each in box.fetch(mark_seen=False)]
