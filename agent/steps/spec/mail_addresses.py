"""Addresses of mail as a workflow writes them: `ann@example.org`, `Ann <ann@example.org>`, or a mapping.

One text is one address. A text with several is refused, so that a value from outside in a template can
never add a recipient.
"""

import re
from typing import Annotated, Any, Final

from agent.core.quick_classes.quick_fields import BeforeValidator, ConfigDict, Field, ValidationInfo
from agent.core.quick_classes.quick_models import BaseModel
from agent.workflows.templates.templates import has_templates

MOST_RECIPIENTS: Final = 100
"""Servers need not accept more for one message."""

_LONGEST_LOCAL_BYTES: Final = 64
_LONGEST_BYTES: Final = 254
_LONGEST_NAME: Final = 200
_named = re.compile(
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^<>"]*?))\s*<(?P<address>[^<>\s]+)>'
)
_breaks = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_local = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+"
    r"(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+)*"
)
_domain = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_literal = re.compile(r"\[(?:\d{1,3}(?:\.\d{1,3}){3}|IPv6:[0-9A-Fa-f:.]+)\]")


class Mailbox(BaseModel):
    """An address with the name of the person; its domain is in ASCII."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = ""
    address: str

    @property
    def domain(self) -> str:
        """The part after the @."""
        return self.address.rpartition("@")[2]

    def __str__(self) -> str:
        if not self.name:
            return self.address
        from email.utils import quote

        is_plain = re.fullmatch(r"[\w '!#$%&*+/=?^`{|}~-]+", self.name) is not None
        name = self.name if is_plain else f'"{quote(self.name)}"'
        return f"{name} <{self.address}>"


def parse_mailbox(value: object) -> Mailbox:
    """Parse one address: a text, or a mapping of `name` and `address` as a watched mail has it."""
    if isinstance(value, Mailbox):
        return value
    if isinstance(value, dict):
        unknown = value.keys() - {"name", "address"}
        if unknown or not isinstance(value.get("address"), str):
            raise ValueError("an address is a text, or a mapping of name and address")
        return _mailbox(value.get("name") or "", value["address"])
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be an address such as ann@example.org")
    text = value.strip()
    if _breaks.search(text):
        raise ValueError("an address must not contain a line break or a control character")
    named = _named.fullmatch(text)
    if named is not None and "@" not in (named["plain"] or ""):
        quoted = re.sub(r"\\(.)", r"\1", named["quoted"] or "")
        return _mailbox(quoted or named["plain"] or "", named["address"])
    if text.count("@") > 1 and re.search(r"[,;]", text):
        raise ValueError(f"{_shown(text)} is more than one address: write a list of them")
    if re.search(r"[\s<>,;]", text):
        raise ValueError(f"{_shown(text)} is not an address such as Ann <ann@example.org>")
    return _mailbox("", text)


def _mailbox(name: object, address: str) -> Mailbox:
    if not isinstance(name, str) or _breaks.search(name) or _breaks.search(address):
        raise ValueError("an address must not contain a line break or a control character")
    local, at, domain = address.strip().rpartition("@")
    # An address cannot be encoded, so that no part of it may look like an encoded word.
    if not at or not _local.fullmatch(local) or "=?" in local:
        raise ValueError(f"{_shown(address)} is not an address such as ann@example.org")
    domain = ascii_domain(domain)
    whole = f"{local}@{domain}"
    too_long = len(local.encode()) > _LONGEST_LOCAL_BYTES or len(whole.encode()) > _LONGEST_BYTES
    if too_long or len(name) > _LONGEST_NAME:
        raise ValueError(f"{_shown(address)} is too long for an address or its name")
    return Mailbox(name=" ".join(name.split()), address=whole)


def ascii_domain(domain: str) -> str:
    """Return a domain as servers know it: international names in their ASCII form."""
    if _literal.fullmatch(domain):
        return domain
    ascii_form = domain
    if not domain.isascii():
        import idna

        try:
            ascii_form = idna.encode(domain, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise ValueError(f"{_shown(domain)} is not a domain") from None
    if not _domain.fullmatch(ascii_form):
        raise ValueError(f"{_shown(domain)} is not a domain")
    return ascii_form.lower()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _mailbox_or_template(value: object, info: ValidationInfo) -> dict[str, Any]:
    """Parse an address; in the file, one with templates is only known once it is rendered."""
    if info.context is None and isinstance(value, str) and has_templates(value):
        return {"address": value}
    return parse_mailbox(value).model_dump()


def _as_list(value: Any) -> Any:
    """Let one address stand for a list; an empty value is no address."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if item is not None and item != ""]


OneMailbox = Annotated[Mailbox, BeforeValidator(_mailbox_or_template, json_schema_input_type=Any)]
Mailboxes = Annotated[
    list[OneMailbox],
    BeforeValidator(_as_list, json_schema_input_type=Any),
    Field(max_length=MOST_RECIPIENTS),
]
