"""The keys of the `mailbox` kind."""

from typing import Annotated, Any, Final, Literal

from agent.core.quick_classes.quick_fields import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.steps.spec.mail_config import HeaderText, is_message_id, quotation
from agent.workflows.templates.templates import has_templates

_MOST: Final = 20

Folder = Annotated[HeaderText, Field(min_length=1, max_length=500)]


class WatchedMail(BaseModel):
    """The mail to change: what a mail watcher shows as `trigger.item`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    message_id: str | None = None
    folder: Folder = "INBOX"


def _watched(value: object, info: ValidationInfo) -> object:
    """Accept a template in the file: the mail is only known once it is rendered."""
    if info.context is None and isinstance(value, str) and has_templates(value):
        return {}
    if not isinstance(value, dict):
        raise ValueError('must be a watched mail, as in mail: "{{ trigger.item }}"')
    if info.context is not None and not is_message_id(value.get("message_id")):
        raise ValueError("the mail has no Message-ID by which it could be found")
    return value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Flag = Literal["seen", "answered", "flagged"]
Flags = Annotated[
    list[Flag], BeforeValidator(_as_list, json_schema_input_type=Any), Field(max_length=_MOST)
]
Labels = Annotated[
    list[Annotated[HeaderText, Field(min_length=1, max_length=100)]],
    BeforeValidator(_as_list, json_schema_input_type=Any),
    Field(max_length=_MOST),
]


class MailboxConfig(BaseModel):
    """`mailbox`: changes of one message over IMAP."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mail: Annotated[WatchedMail, BeforeValidator(_watched, json_schema_input_type=Any)] = Field(
        description="the watched mail, by its message_id and its folder"
    )
    account: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="of [mail.NAME], with its imap section; needed with several",
    )
    move: Folder | None = Field(default=None, description="the folder that it goes to")
    label: Labels = Field(default_factory=list)
    unlabel: Labels = Field(default_factory=list)
    flag: Flags = Field(default_factory=list)
    unflag: Flags = Field(default_factory=list)

    @model_validator(mode="after")
    def _changes_something(self) -> "MailboxConfig":
        if not (self.move or self.label or self.unlabel or self.flag or self.unflag):
            raise ValueError("give move, label, unlabel, flag or unflag")
        return self


def complete(config: dict[str, Any]) -> dict[str, Any]:
    """Return a rendered configuration with what is used of the mail."""
    mail = config.get("mail")
    if not isinstance(mail, dict):
        return config  # the check of the whole configuration says what is wrong
    return {
        **config,
        "mail": {name: mail[name] for name in ("message_id", "folder") if name in mail},
    }


def shown_mail(config: dict[str, Any]) -> str | None:
    """Return the mail of a rendered configuration, for the person who is asked."""
    return quotation("The mail:", config.get("mail"))
