"""The accounts of `mail` and `mailbox` steps: `[mail.NAME]`, and `[mail.NAME.imap]` for the mailbox."""

from typing import Literal

from agent.config.models import REFERENCE, Section
from agent.core.quick_classes.quick_fields import (
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

Tls = Literal["implicit", "starttls", "none"]


class ImapSettings(Section):
    """The mailbox, with the folder of sent mail: `[mail.NAME.imap]`."""

    host: str = Field(min_length=1, max_length=253)
    port: int | None = Field(default=None, ge=1, le=65_535)
    tls: Tls = "implicit"
    user: str = ""
    password: str = Field(default="", pattern=REFERENCE)
    folder: str = Field(default="", max_length=500)


class MailSettings(Section):
    """One account that `mail` steps send from: `[mail.NAME]`."""

    model_config = ConfigDict(populate_by_name=True)

    host: str = Field(min_length=1, max_length=253)
    port: int | None = Field(default=None, ge=1, le=65_535)
    tls: Tls = "implicit"
    user: str = Field(default="", max_length=500)
    password: str = Field(default="", pattern=REFERENCE)
    from_: str = Field(alias="from", min_length=3, max_length=500)
    also_from: list[str] = Field(default_factory=list, max_length=100)
    timeout_seconds: float = Field(default=120.0, ge=1, le=3600)
    imap: ImapSettings | None = None

    @field_validator("from_")
    @classmethod
    def _is_address(cls, address: str) -> str:
        if "@" not in address:
            raise ValueError('should be an address, as in "Ann <ann@example.org>"')
        return address

    @model_validator(mode="after")
    def _has_both(self) -> "MailSettings":
        if bool(self.user) != bool(self.password):
            raise ValueError("user and password go together; a server without login has neither")
        if self.imap is not None and not (self.imap.user or self.user):
            raise ValueError("imap needs user and password: the account has none to use for it")
        if self.imap is not None and bool(self.imap.user) != bool(self.imap.password):
            raise ValueError("imap: user and password go together, or both are the account's own")
        return self

    def imap_keys(self) -> dict[str, object] | None:
        """Return the keys of the IMAP connection, as a `mail` watcher has them."""
        if self.imap is None:
            return None
        keys = self.imap.model_dump()
        if not self.imap.user:
            keys |= {"user": self.user, "password": self.password}
        return keys


MAIL_TEXT = """\
#
# Accounts that `mail` steps send from, one section each.
#
# [mail.work]
# host = "smtp.example.org"
# tls = "implicit"                   # port 465; "starttls": 587; "none": to this machine, or to an
#                                    # address that http.allow_private lists
# port = 465                         # if it is not the usual one
# user = "ann@example.org"
# password = "env:WORK_MAIL_PASSWORD"   # env:, file:, keyring: or exec:, never the password itself
# from = "Ann <ann@example.org>"
# also_from = ["info@example.org"]   # other addresses that a step's `from` may use
# timeout_seconds = 120.0            # for one mail, where the step has no timeout
#
# [mail.work.imap]                   # to find out whether a mail was sent, for save_sent and mailbox
# host = "imap.example.org"          # tls, port, user and password are as above
# folder = "Sent"                    # empty: the folder that the server calls its sent mail
"""
"""The end of the shipped configuration: accounts as comments."""
