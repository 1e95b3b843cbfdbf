"""The keys of the sources under `on: watch`, one model a source.

Most sources may be written as one text: `feed: https://…` is short for `feed: {url: https://…}`.
"""

import re
from typing import Annotated, Any, Final, Literal

from agent.core import secret_reference
from agent.core.quick_classes.quick_fields import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.workflows.compile.field_types import Duration, one_or_more

SOURCES: Final = ("feed", "url", "path", "mail", "calendar", "git", "command", "python")

_Secret = Annotated[
    str,
    Field(pattern=secret_reference.PATTERN, description=f"by reference: {secret_reference.FORMS}"),
]
_Headers = Annotated[dict[str, str], Field(max_length=50)]


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _short_for(key: str) -> BeforeValidator:
    """Let one text (or list) stand for a mapping with this key alone."""
    return BeforeValidator(
        lambda value: {key: value} if isinstance(value, str | list) else value,
        json_schema_input_type=Any,
    )


def _check_address(address: str) -> None:
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"{address!r} is not an address that starts with http:// or https://")


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _is_selector(text: str) -> str:
    """Check a CSS selector, where the library is installed that will read it."""
    try:
        from selectolax.lexbor import LexborHTMLParser, SelectolaxError
    except ImportError:
        return text
    try:
        LexborHTMLParser("<p></p>").css(text)
    except SelectolaxError:
        raise ValueError(f"{text!r} is not a CSS selector") from None
    return text


def _is_jmespath(text: str) -> str:
    """Check a JMESPath expression, where the library is installed that will read it."""
    try:
        import jmespath
        from jmespath.exceptions import JMESPathError
    except ImportError:
        return text
    try:
        jmespath.compile(text)
    except (JMESPathError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{text!r} is not a JMESPath expression: {reason}") from None
    return text


def _is_glob(pattern: str) -> str:
    """Refuse alternatives as shells write them: in patterns of names, braces are letters as any other."""
    if (written := re.search(r"\{([^{}]*,[^{}]*)\}", pattern)) is not None:
        ways = [pattern.replace(written[0], way.strip(), 1) for way in written[1].split(",")]
        listed = ", ".join(f'"{way}"' for way in ways)
        raise ValueError(f"{pattern!r} matches no alternatives; give a list: [{listed}]")
    return pattern


def _is_name_pattern(pattern: str) -> str:
    if "/" in pattern:
        raise ValueError(
            f"{pattern!r} can match nothing: it is for names, without directories; `recursive: true`"
            " adds the directories below"
        )
    return _is_glob(pattern)


_Glob = Annotated[str, AfterValidator(_is_glob)]
_NamePattern = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_is_name_pattern)]
PathEvent = Literal["created", "changed", "deleted"]
CalendarEvent = Literal["created", "changed", "starting"]
_PATH_EVENTS: Final[tuple[PathEvent, ...]] = ("created", "changed")
_CALENDAR_EVENTS: Final[tuple[CalendarEvent, ...]] = ("starting",)


class FeedKeys(_Keys):
    """RSS, Atom or JSON Feed."""

    url: str = Field(min_length=1, max_length=8192)
    headers: _Headers = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_address(self) -> "FeedKeys":
        _check_address(self.url)
        return self


class UrlKeys(_Keys):
    """A page or a JSON document, or a part of it; an item is a change of it."""

    url: str = Field(min_length=1, max_length=8192)
    select: Annotated[str, AfterValidator(_is_selector)] | None = Field(
        default=None, min_length=1, max_length=1000, description="a CSS selector"
    )
    attribute: str | None = Field(
        default=None, min_length=1, max_length=100, description="of the selected elements"
    )
    jmespath: Annotated[str, AfterValidator(_is_jmespath)] | None = Field(
        default=None, min_length=1, max_length=1000
    )
    pattern: Annotated[str, AfterValidator(_is_pattern)] | None = Field(
        default=None, min_length=1, max_length=1000, description="a regular expression"
    )
    headers: _Headers = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_address(self) -> "UrlKeys":
        _check_address(self.url)
        if self.select is not None and self.jmespath is not None:
            raise ValueError("give at most one of select and jmespath")
        if self.attribute is not None and self.select is None:
            raise ValueError("attribute needs select")
        return self


class PathKeys(_Keys):
    """A file or a directory."""

    path: str = Field(min_length=1, max_length=4096)
    match: (
        _NamePattern | Annotated[list[_NamePattern], Field(min_length=1, max_length=100)] | None
    ) = Field(default=None, description="a pattern of names, as in *.pdf, or several")
    events: Annotated[list[PathEvent], one_or_more] = Field(
        default_factory=lambda: list(_PATH_EVENTS), min_length=1
    )
    recursive: bool = False
    quiet: Duration = Field(
        default=2.0,
        validate_default=False,
        description="a file counts once it has not changed for this long",
    )
    poll: bool = Field(
        default=False, description="never rely on notifications: for network file systems"
    )


class MailKeys(_Keys):
    """New messages of a mailbox, over IMAP."""

    host: str = Field(min_length=1, max_length=253)
    port: int | None = Field(default=None, ge=1, le=65535)
    user: str = Field(min_length=1, max_length=500)
    password: _Secret
    folder: str = Field(default="INBOX", min_length=1, max_length=500)
    tls: Literal["implicit", "starttls", "none"] = "implicit"
    sender: str | None = Field(default=None, min_length=1, max_length=500)
    subject: str | None = Field(default=None, min_length=1, max_length=500)
    idle: bool = Field(default=True, description="poll at once when the server reports a message")


class CalendarKeys(_Keys):
    """Events of a calendar, over CalDAV or as an ICS file."""

    url: str = Field(min_length=1, max_length=8192)
    user: str | None = Field(default=None, min_length=1, max_length=500)
    password: _Secret | None = None
    calendar: str | None = Field(
        default=None, min_length=1, max_length=500, description="its name, of several"
    )
    events: Annotated[list[CalendarEvent], one_or_more] = Field(
        default_factory=lambda: list(_CALENDAR_EVENTS), min_length=1
    )
    before: Duration = Field(
        default=0.0, validate_default=False, description="how long before its start an event counts"
    )
    timezone: str | None = Field(
        default=None,
        max_length=100,
        description="of events without one; default: the machine's own",
    )

    @model_validator(mode="after")
    def _is_address(self) -> "CalendarKeys":
        _check_address(self.url)
        return self


class GitKeys(_Keys):
    """New commits of branches, and new tags, of a repository."""

    url: str = Field(min_length=1, max_length=8192)
    branches: Annotated[list[_Glob], one_or_more] = Field(default_factory=list, max_length=100)
    tags: Annotated[list[_Glob], one_or_more] = Field(
        default_factory=list, max_length=100, description="patterns of names, as in v*"
    )


class CommandKeys(_Keys):
    """A program that prints one JSON object a line, each with a `key`."""

    argv: Annotated[list[str], Field(min_length=1, max_length=1000)]
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = Field(default=None, min_length=1, max_length=4096)


class PythonKeys(_Keys):
    """A function that returns items."""

    call: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=500, examples=["my_steps:new_items"]
    )
    with_: dict[str, Any] = Field(default_factory=dict, alias="with")


Feed = Annotated[FeedKeys, _short_for("url")]
Url = Annotated[UrlKeys, _short_for("url")]
WatchedPath = Annotated[PathKeys, _short_for("path")]
Calendar = Annotated[CalendarKeys, _short_for("url")]
Git = Annotated[GitKeys, _short_for("url")]
Command = Annotated[CommandKeys, _short_for("argv")]
PythonSource = Annotated[PythonKeys, _short_for("call")]
