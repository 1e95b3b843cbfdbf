"""Builds a message: headers, texts and attachments, as bytes that every server takes.

Every text that becomes a header is written here, and never parsed by the standard library. Its parser
decodes encoded words (`=?utf-8?q?...?=`) wherever they stand, and before Python 3.13 its folding then
wrote their line breaks as they were: a subject from outside could add headers, and a body. It also
encodes a long id as if it were a text, which breaks a thread. A text that looks like an encoded word is
encoded itself, so that the recipient reads exactly what a person approved.
"""

import mimetypes
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import encode_rfc2231, format_datetime, quote
from typing import Any, Final

from agent.core.clock import SECOND
from agent.steps.mail.html_text import text_of
from agent.steps.spec.mail_addresses import Mailbox
from agent.steps.types.attachment import Attachment

_ENCODED_WORD: Final = "=?"
_FOLD: Final = "\r\n "
_FOLD_LENGTH: Final = 64
"""Of a line of a header, without its name."""

_plain = re.compile(r"[!-~]{1,900}( [!-~]{1,900})*")
_plain_file_name = re.compile(r"[\w .()+,-]{1,60}", re.ASCII)
_header = re.compile(rb"[!-9;-~]+:[^\r\n\0]{0,920}(\r\n[ \t]+[^ \t\r\n\0][^\r\n\0]{0,990})*\r\n")


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


class _Written(str):
    """The content of a header as it goes out: encoded, and folded."""

    __slots__ = ()


class _WirePolicy(EmailPolicy):
    def header_store_parse(self, name: str, value: Any) -> tuple[str, Any]:
        if isinstance(value, _Written):
            return name, value
        return super().header_store_parse(name, value)

    def fold_binary(self, name: str, value: Any) -> bytes:
        if isinstance(value, _Written):
            line = f"{name}: {value}\r\n".encode()
        else:
            line = super().fold_binary(name, value)
        if not _header.fullmatch(line):
            raise ValueError(f"the header {name} would not end where it should")
        return line


def _text(text: str) -> _Written:
    if not _plain.fullmatch(text) or _ENCODED_WORD in text:
        return _encoded(text)
    lines = textwrap.wrap(text, _FOLD_LENGTH, break_long_words=False, break_on_hyphens=False)
    return _Written(_FOLD.join(lines))


def _encoded(text: str) -> _Written:
    return _Written(Header(text, "utf-8", maxlinelen=_FOLD_LENGTH).encode(linesep="\r\n"))


def _addresses(mailboxes: Iterable[Mailbox]) -> _Written:
    return _Written(f",{_FOLD}".join(map(_address, mailboxes)))


def _address(mailbox: Mailbox) -> str:
    name = mailbox.name
    if not name:
        return mailbox.address
    is_plain = name.isascii() and _ENCODED_WORD not in name
    written_name = f'"{quote(name)}"' if is_plain else _encoded(name)
    return f"{written_name} <{mailbox.address}>"


def _disposition(file_name: str) -> _Written:
    """Return the header of an attachment; RFC 2231 writes a name that is not plain, in pieces."""
    if _plain_file_name.fullmatch(file_name):
        return _Written(f'attachment; filename="{file_name}"')
    pieces = re.findall(r"(?:%..|[^%]){1,20}", encode_rfc2231(file_name, "utf-8"))
    parts = [f"filename*{number}*={piece}" for number, piece in enumerate(pieces)]
    return _Written(f";{_FOLD}".join(["attachment", *parts]))


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
    message["From"] = _addresses([letter.sender])
    for name, mailboxes in (("To", letter.to), ("Cc", letter.cc), ("Reply-To", letter.reply_to)):
        if mailboxes:
            message[name] = _addresses(mailboxes)
    if not letter.to and not letter.cc:
        message["To"] = _Written("undisclosed-recipients:;")
    message["Subject"] = _text(letter.subject)
    message["Date"] = format_datetime(datetime.fromtimestamp(now_us / SECOND, UTC))
    message["Message-ID"] = _Written(identity)
    if letter.references:
        message["In-Reply-To"] = _Written(letter.references[-1])
        message["References"] = _Written(_FOLD.join(letter.references))
    for name, value in letter.headers.items():
        message[name] = _text(value)
    _set_body(message, letter)
    for attachment in letter.attachments:
        _attach(message, attachment)
    _name_boundaries(message, identity)
    return message.as_bytes()


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
        disposition=_disposition(attachment.name),
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
