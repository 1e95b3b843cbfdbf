"""Builds a message: headers, texts and attachments, as bytes that every server takes.

`email.policy` builds it. Headers with addresses and ids are folded here, one to a line: the standard
library encodes a long id as if it were a text, which breaks a thread, and before Python 3.12.4 it
could encode the comma between two addresses.
"""

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime, quote
from typing import Any, Final

from agent.core.clock import SECOND
from agent.steps.mail.html_text import text_of
from agent.steps.spec.mail_addresses import Mailbox
from agent.steps.types.attachment import Attachment

_IDS: Final = frozenset({"message-id", "in-reply-to", "references"})


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail that is ready to be written: its sender, its recipients and its content."""

    sender: Mailbox
    to: list[Mailbox]
    cc: list[Mailbox]
    recipients: list[Mailbox]
    """Everyone it goes to, those of `bcc` included."""
    subject: str
    text: str | None
    html: str | None
    attachments: Sequence[Attachment]
    reply_to: list[Mailbox]
    references: list[str]
    """The ids of the thread, that of the answered mail last."""
    headers: dict[str, str]

    @property
    def is_international(self) -> bool:
        """Whether an address needs a server that takes more than ASCII (SMTPUTF8)."""
        everyone = [self.sender, *self.recipients, *self.reply_to]
        return not all(mailbox.address.isascii() for mailbox in everyone)


class _WirePolicy(EmailPolicy):
    def fold_binary(self, name: str, value: Any) -> bytes:
        addresses = getattr(value, "addresses", None)
        if addresses:
            lines = ",\r\n ".join(map(_written, addresses))
        elif name.lower() in _IDS:
            lines = "\r\n ".join(str(value).split())
        else:
            return super().fold_binary(name, value)
        return f"{name}: {lines}\r\n".encode()


def _written(address: Address) -> str:
    """Return an address as a header has it; a name beyond ASCII is encoded."""
    name, spec = address.display_name, f"{address.username}@{address.domain}"
    if not name:
        return spec
    encoded = f'"{quote(name)}"' if name.isascii() else Header(name, "utf-8").encode(linesep="\r\n")
    return f"{encoded} <{spec}>"


def message_id(remote_key: str, sender: Mailbox) -> str:
    """Return the id of the mail of a call: the same when an unknown one is repeated."""
    domain = sender.domain.strip("[]").replace(":", ".")
    return f"<{remote_key}@{domain}>"


def written(letter: Letter, identity: str, now_us: int) -> bytes:
    """Return the message with its headers, in lines that end with CRLF."""
    # Seven bits pass every server; nothing depends on 8BITMIME.
    policy = _WirePolicy(
        linesep="\r\n", max_line_length=78, utf8=letter.is_international, cte_type="7bit"
    )
    message = EmailMessage(policy=policy)
    message["From"] = _address(letter.sender)
    for name, addresses in (("To", letter.to), ("Cc", letter.cc), ("Reply-To", letter.reply_to)):
        if addresses:
            message[name] = [_address(address) for address in addresses]
    if not letter.to and not letter.cc:
        message["To"] = "undisclosed-recipients:;"
    message["Subject"] = letter.subject
    message["Date"] = format_datetime(datetime.fromtimestamp(now_us / SECOND, UTC))
    message["Message-ID"] = identity
    if letter.references:
        message["In-Reply-To"] = letter.references[-1]
        message["References"] = " ".join(letter.references)
    for name, value in letter.headers.items():
        message[name] = value
    _set_body(message, letter)
    for attachment in letter.attachments:
        _attach(message, attachment)
    _name_boundaries(message, identity)
    return message.as_bytes()


def _address(mailbox: Mailbox) -> Address:
    username, _, domain = mailbox.address.rpartition("@")
    return Address(mailbox.name, username, domain)


def _set_body(message: EmailMessage, letter: Letter) -> None:
    text = letter.text
    if text is None:
        assert letter.html is not None
        text = text_of(letter.html)
    message.set_content(_storable(text))
    if letter.html is not None:
        message.add_alternative(_storable(letter.html), subtype="html")


def _attach(message: EmailMessage, attachment: Attachment) -> None:
    guessed, encoding = mimetypes.guess_type(attachment.name)
    if guessed is None or encoding is not None or guessed.startswith(("message/", "multipart/")):
        # Parts of the last two must not be encoded, and so could not hold just any content.
        guessed = "application/octet-stream"
    main_type, _, subtype = guessed.partition("/")
    params = {"charset": "utf-8"} if main_type == "text" and _is_utf8(attachment.content) else {}
    message.add_attachment(
        attachment.content,
        maintype=main_type,
        subtype=subtype,
        filename=attachment.name,
        params=params,
    )


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _storable(text: str) -> str:
    """Return a text that UTF-8 can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _name_boundaries(message: EmailMessage, identity: str) -> None:
    """Derive the boundaries from the id: a mail that is sent again has the same ones."""
    key = identity.strip("<>").partition("@")[0][:32]
    for number, part in enumerate(message.walk()):
        if part.is_multipart():
            part.set_boundary(f"={key}-{number}=")
