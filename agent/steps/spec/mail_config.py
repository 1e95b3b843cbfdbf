"""The keys of the `mail` kind."""

import re
from typing import Annotated, Any, Final, Literal

from agent.core.quick_classes.quick_fields import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.steps.spec.attachment_config import Attachments
from agent.steps.spec.configs import RENDERED, Text
from agent.steps.spec.mail_addresses import MOST_RECIPIENTS, Mailbox, Mailboxes, OneMailbox
from agent.workflows.templates.templates import has_templates

MOST_REFERENCES: Final = 50
_MOST_HEADERS: Final = 20
_MOST_QUOTED: Final = 1_000
"""Characters of the answered mail that a question shows: a longer question has no buttons in chats."""
_breaks = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_header_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,75}")
_message_id = re.compile(r"<[\x21-\x3b\x3d\x3f-\x7e]{1,900}>")
_reply_prefix = re.compile(
    r"^(?:\s*(?:re|aw|sv|antw|odp|ref)\s*(?:\[\d+\])?\s*:)+\s*", re.IGNORECASE
)

_OWN_HEADERS: Final = {
    "from": "from",
    "to": "to",
    "cc": "cc",
    "bcc": "bcc",
    "subject": "subject",
    "reply-to": "reply_to",
    "in-reply-to": "reply_to_mail",
    "references": "reply_to_mail",
}
"""Headers that keys of the step set."""
_AGENT_HEADERS: Final = frozenset(
    {"message-id", "date", "sender", "mime-version", "return-path", "received", "dkim-signature"}
)
"""Headers that the agent or a server sets; `Message-ID` finds the mail again."""


def _one_line(value: str) -> str:
    value = value.strip()
    if _breaks.search(value):
        raise ValueError(
            "must be one line without control characters: a line break could add headers to the mail"
        )
    return value


HeaderText = Annotated[Text, AfterValidator(_one_line), Field(max_length=2000)]


def is_message_id(text: object) -> bool:
    """Whether a text is the id of a message, as it stands in headers.

    Ids are written as they are: one with an encoded word could be decoded by a reader.
    """
    return isinstance(text, str) and _message_id.fullmatch(text) is not None and "=?" not in text


class RepliedMail(BaseModel):
    """The mail that is answered: what a mail watcher shows as `trigger.item`.

    Anyone may have sent it: what is not an id of a message is left out of the headers.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    message_id: str | None = None
    references: list[Any] = Field(default_factory=list)
    in_reply_to: str | None = None
    from_: OneMailbox | None = Field(default=None, alias="from")
    reply_to: Mailboxes = Field(default_factory=list)
    subject: str = ""
    date: Any = None
    text: Any = None

    def recipients(self) -> list[Mailbox]:
        """Return whom an answer goes to."""
        return self.reply_to or ([self.from_] if self.from_ is not None else [])

    def thread(self) -> list[str]:
        """Return the ids of the thread, the answered mail last, as `References` lists them."""
        ids = [reference for reference in self.references if is_message_id(reference)]
        if not ids and is_message_id(self.in_reply_to):
            ids = [str(self.in_reply_to)]
        if is_message_id(self.message_id):
            ids = [
                *(message_id for message_id in ids if message_id != self.message_id),
                str(self.message_id),
            ]
        # The first message of a thread, and the nearest ones.
        return ids if len(ids) <= MOST_REFERENCES else ids[:1] + ids[1 - MOST_REFERENCES :]

    def answer_subject(self) -> str:
        """Return the subject with one `Re:` in front."""
        subject = " ".join(_breaks.sub(" ", self.subject).split())
        return f"Re: {_reply_prefix.sub('', subject)}".strip()


def _replied(value: object, info: ValidationInfo) -> object:
    """Accept a template in the file: the mail is only known once it is rendered."""
    if info.context is None and isinstance(value, str) and has_templates(value):
        return {}
    if not isinstance(value, dict):
        raise ValueError('must be a watched mail, as in reply_to_mail: "{{ trigger.item }}"')
    return value


class MailConfig(BaseModel):
    """`mail`: one message over SMTP."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    account: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="of [mail.NAME]; needed with several",
    )
    to: Mailboxes = Field(default_factory=list)
    cc: Mailboxes = Field(default_factory=list)
    bcc: Mailboxes = Field(default_factory=list)
    subject: HeaderText | None = None
    text: Text | None = None
    html: Text | None = None
    attach: Attachments = Field(default_factory=list)
    reply_to_mail: Annotated[
        RepliedMail | None, BeforeValidator(_replied, json_schema_input_type=Any)
    ] = Field(default=None, description="a watched mail that this one answers")
    reply_to: Mailboxes = Field(default_factory=list)
    from_: OneMailbox | None = Field(default=None, alias="from")
    headers: dict[str, HeaderText] = Field(default_factory=dict, max_length=_MOST_HEADERS)
    save_sent: bool = False
    on_refused: Literal["send", "fail"] = Field(
        default="send", description="what follows when the server refuses some of the recipients"
    )

    @property
    def recipients(self) -> list[Mailbox]:
        """Everyone whom the mail goes to, each address once."""
        by_address = {mailbox.address: mailbox for mailbox in [*self.to_shown, *self.cc, *self.bcc]}
        return list(by_address.values())

    @property
    def to_shown(self) -> list[Mailbox]:
        """The addresses of `To`: those of the step, or those that an answer goes to."""
        if self.to or self.reply_to_mail is None:
            return self.to
        return self.reply_to_mail.recipients()

    @model_validator(mode="after")
    def _is_a_mail(self, info: ValidationInfo) -> "MailConfig":
        if self.reply_to_mail is None:
            if not (self.to or self.cc or self.bcc):
                raise ValueError("give to, cc or bcc, or reply_to_mail: the mail has no recipient")
            if self.subject is None:
                raise ValueError("give a subject; only an answer (reply_to_mail) has one by itself")
        elif info.context is not None and not self.recipients:
            raise ValueError("the mail in reply_to_mail has no sender: give to")
        if self.text is None and self.html is None:
            raise ValueError("give text or html, or both")
        if len(self.recipients) > MOST_RECIPIENTS:
            raise ValueError(f"at most {MOST_RECIPIENTS} recipients are allowed in all")
        _check_headers(self.headers)
        return self


def _check_headers(headers: dict[str, str]) -> None:
    for name in headers:
        lower = name.lower()
        if not _header_name.fullmatch(name):
            raise ValueError(f"headers: {name!r} is not the name of a header, such as X-Report")
        if lower in _OWN_HEADERS:
            raise ValueError(f"headers: {name} is set by the key {_OWN_HEADERS[lower]}")
        if lower in _AGENT_HEADERS or lower.startswith("content-"):
            raise ValueError(f"headers: {name} is set by the agent or by the server")


def answered_mail(config: dict[str, Any]) -> str | None:
    """Return the mail that a rendered configuration answers, for the person who is asked."""
    return quotation("The mail that is answered:", config.get("reply_to_mail"))


def quotation(title: str, watched: object) -> str | None:
    """Return a watched mail as a quotation; None for what is no mail.

    Anyone may have written it: each line is marked as quoted, in a block that no line of it can end.
    """
    try:
        mail = RepliedMail.model_validate(watched, context=RENDERED)
    except ValueError:
        return None
    head = {"From": mail.from_, "Date": mail.date, "Subject": mail.subject}
    text = str(mail.text or "").strip()
    whole = "".join(f"{name}: {value}\n" for name, value in head.items() if value)
    whole += f"\n{text[:_MOST_QUOTED]}"
    if len(text) > _MOST_QUOTED:
        whole += f"\n… {len(text) - _MOST_QUOTED:,} more characters"
    quoted = "\n".join(f"> {line}".rstrip() for line in whole.splitlines())
    return f"{title}\n```\n{quoted}\n```"


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Return a rendered configuration with the recipients and the subject of an answer written out.

    A person who approves it sees whom it goes to, and of the answered mail only what is used.
    """
    try:
        mail = RepliedMail.model_validate(config.get("reply_to_mail"), context=RENDERED)
    except ValueError:
        return config  # the check of the whole configuration says what is wrong
    filled = dict(config)
    if not config.get("to"):
        filled["to"] = [
            mailbox.model_dump() if mailbox.name else mailbox.address
            for mailbox in mail.recipients()
        ]
    if config.get("subject") is None:
        filled["subject"] = mail.answer_subject()
    thread = mail.thread()
    used = {"message_id": mail.message_id if is_message_id(mail.message_id) else None}
    return {**filled, "reply_to_mail": {**used, "references": thread}}
