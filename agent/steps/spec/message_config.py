"""The keys of the `message` kind."""

import re
from typing import Annotated, Final

from agent.core import secret_reference
from agent.core.quick_classes.quick_fields import AfterValidator, BeforeValidator, ConfigDict, Field
from agent.core.quick_classes.quick_models import BaseModel
from agent.steps.spec.attachment_config import Attachments
from agent.steps.spec.configs import Seconds, Text
from agent.steps.types.messages import Recipient
from agent.workflows.templates.templates import has_templates

ORIGIN: Final = "origin"
OPERATOR: Final = "operator"
MAX_RECIPIENTS: Final = 50
_FORMS: Final = (
    "origin, operator, telegram:ID, slack:ID, terminal:USER, or apprise:env:NAME for an address of"
    " Apprise"
)
_IDS: Final = {
    "telegram": re.compile(r"-?[0-9]{1,20}|@[A-Za-z0-9_]{4,64}"),
    "slack": re.compile(r"[A-Z][A-Z0-9]{1,30}"),
    "terminal": re.compile(r"[^\s:]{1,100}"),
    "apprise": re.compile(secret_reference.ANY),
}
_HINTS: Final = {
    "telegram": "a number such as telegram:123456789, or the name of a channel such as @news",
    "slack": "the id of a member or of a channel, such as slack:U0123ABCD",
    "terminal": "the name of a user of this machine",
    "apprise": "a reference, since the address holds secrets: apprise: and "
    f"{secret_reference.FORMS}",
}


def parse_recipient(text: str) -> Recipient:
    """Read a recipient such as `telegram:123`; raise `ValueError` with what would be right."""
    channel, _, recipient_id = text.partition(":")
    pattern = _IDS.get(channel)
    if pattern is None:
        raise ValueError(f"{text!r} is not a recipient: write {_FORMS}")
    if pattern.fullmatch(recipient_id) is None:
        raise ValueError(f"{text!r} is not a recipient of {channel}: write {_HINTS[channel]}")
    return Recipient(channel, recipient_id)


def _check_recipient(text: str) -> str:
    text = text.strip()
    if text not in (ORIGIN, OPERATOR) and not has_templates(text):
        parse_recipient(text)
    return text


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


RecipientText = Annotated[
    str, Field(min_length=1, max_length=500), AfterValidator(_check_recipient)
]


class MessageConfig(BaseModel):
    """`message`: a text to a person, with files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[Text, Field(min_length=1, max_length=200_000, description="Markdown")]
    to: (
        Annotated[
            list[RecipientText],
            BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
            Field(min_length=1, max_length=MAX_RECIPIENTS),
        ]
        | None
    ) = Field(
        default=None,
        description=f"{_FORMS}; or a list of these. The default is origin if a chat started the task,"
        " and operator otherwise",
    )
    attach: Attachments = Field(default_factory=list)
    thread: Text | None = Field(
        default=None,
        description="the thread to write in: of Slack the id of its first message, of Telegram the"
        " number of a topic",
    )
    plain: bool = Field(
        default=False, description="true: the text is shown as it is, not as Markdown"
    )
    deliver_within: Seconds = Field(
        default=3600.0,
        description="how long an unreachable channel is tried again before the step fails",
    )
