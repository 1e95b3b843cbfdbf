"""The keys under `on:`: what starts a workflow by itself."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from agent.core import secret_reference
from agent.core.quick_classes.quick_fields import AfterValidator, ConfigDict, Field, model_validator
from agent.core.quick_classes.quick_models import BaseModel
from agent.workflows.compile.field_types import PositiveDuration, one_or_more
from agent.workflows.compile.watch_sources import (
    SOURCES,
    Calendar,
    Command,
    Feed,
    Git,
    MailKeys,
    PythonSource,
    Url,
    WatchedPath,
)

NAME_OF_TRIGGER: Final = r"^[a-z_][a-z0-9_-]*$"

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


_LAST_OF_FIELDS: Final = (59, 23, 31, 12, 7)


def _is_cron(expression: str) -> str:
    """Check a cron expression by cron's own rules, and that it matches any time."""
    plain = _MACROS.get(expression.strip(), expression.strip())
    if len(plain.split()) != 5:
        raise ValueError(
            f"{expression!r} is not a cron expression; it has five fields (minute, hour, day, "
            "month, weekday), such as '0 8 * * 1-5'"
        )
    for field, last in zip(plain.split(), _LAST_OF_FIELDS, strict=True):
        for part in field.split(","):
            begin, slash, every = part.partition("/")
            if slash and begin.isalnum():
                raise ValueError(
                    f"{expression!r}: in cron a step follows a range or `*`, not a single value;"
                    f" instead of {part} write {begin}-{last}/{every}"
                )
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(plain, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise ValueError(f"{expression!r} is not a cron expression: {error}") from None
    except StopIteration:
        raise ValueError(f"{expression!r} matches no time") from None
    return plain


def _is_timezone(name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except Exception:
        raise ValueError(
            f"there is no time zone {name!r}; write one such as Europe/Berlin or UTC"
        ) from None
    return name


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _is_instant(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write one such as 2027-01-31T08:00 (in the schedule's time"
            " zone) or 2027-01-31T08:00:00Z"
        ) from None
    return text


TriggerId = Annotated[
    str,
    Field(
        pattern=NAME_OF_TRIGGER,
        max_length=64,
        description="a name that keeps its history when its keys are edited",
        examples=["weekdays"],
    ),
]
_Instant = Annotated[str, Field(max_length=40), AfterValidator(_is_instant)]
Overlap = Literal["skip", "queue", "queue_all", "cancel_other", "allow"]

TIMING_KEYS: Final = ("cron", "every", "at", "timezone", "start", "end", "jitter")
"""The keys of a schedule that decide its instants."""


DURATIONS: Final = frozenset(
    {"every", "window", "jitter", "stagger", "timeout", "expect_every", "quiet", "before"}
)
"""The keys of triggers and sources that are durations; compiled, their names end in `_seconds`."""


class _StartKeys(_Keys):
    """What schedules and watchers share: how their tasks are started."""

    id: TriggerId | None = None
    overlap_ignores_waiting: bool = Field(
        default=False,
        description="whether a task that only waits for a person leaves room for the next",
    )
    pause_after_failures: int | None = Field(
        default=None, ge=1, le=1000, description="failed tasks in a row that pause it"
    )
    inputs: dict[str, Any] = Field(default_factory=dict)


class ScheduleKeys(_StartKeys):
    """A time table: a cron expression, an interval, or single instants."""

    cron: Annotated[str, Field(max_length=200), AfterValidator(_is_cron)] | None = None
    every: PositiveDuration | None = None
    at: Annotated[list[_Instant], one_or_more, Field(min_length=1, max_length=1000)] | None = None
    timezone: Annotated[str, Field(max_length=100), AfterValidator(_is_timezone)] | None = Field(
        default=None, description="such as Europe/Berlin; default: the machine's own"
    )
    start: _Instant | None = Field(default=None, description="no instant before this time")
    end: _Instant | None = Field(default=None, description="no instant after this time")
    jitter: PositiveDuration | None = Field(
        default=None, description="each run starts up to this much later, at random"
    )
    catch_up: Literal["none", "latest", "all", "ask"] = Field(
        default="latest", description="which missed runs to start afterwards"
    )
    window: PositiveDuration | None = Field(
        default=None, description="how late a missed run may still start"
    )
    most: int = Field(default=10, ge=1, le=1000, description="the most runs that `all` catches up")
    stagger: PositiveDuration = Field(
        default=10.0, validate_default=False, description="the time between two runs caught up"
    )
    overlap: Overlap = Field(
        default="skip", description="what to do while the last run is still open"
    )

    @model_validator(mode="after")
    def _one_way(self) -> "ScheduleKeys":
        if sum(way is not None for way in (self.cron, self.every, self.at)) != 1:
            raise ValueError("give exactly one of cron, every and at")
        return self


class WatchKeys(_StartKeys):
    """Something outside that is polled for new items."""

    feed: Feed | None = None
    url: Url | None = None
    path: WatchedPath | None = None
    mail: MailKeys | None = None
    calendar: Calendar | None = None
    git: Git | None = None
    command: Command | None = None
    python: PythonSource | None = None
    every: PositiveDuration = Field(
        default=900.0, validate_default=False, description="the time between two polls"
    )
    timeout: PositiveDuration = Field(
        default=60.0, validate_default=False, description="how long one poll may take"
    )
    first: Literal["baseline", "latest", "all"] = Field(
        default="baseline", description="what the first poll starts: nothing, the latest item, all"
    )
    per: Literal["item", "batch"] = Field(
        default="item", description="a task for each item, or one for all new items of a poll"
    )
    most: int = Field(
        default=20, ge=1, le=1000, description="the most tasks that one poll starts; others queue"
    )
    expect_every: PositiveDuration | None = Field(
        default=None, description="notify the operator when nothing new came for this long"
    )
    overlap: Overlap = Field(default="allow", description="what to do while a task is still open")

    @model_validator(mode="after")
    def _one_source(self) -> "WatchKeys":
        if sum(getattr(self, name) is not None for name in SOURCES) != 1:
            raise ValueError(f"give exactly one of {', '.join(SOURCES[:-1])} and {SOURCES[-1]}")
        return self


class WebhookKeys(_Keys):
    """A call from outside, and how its origin is verified."""

    verify: Literal["standard", "github", "stripe", "slack", "token"] = "standard"
    secret: str = Field(
        pattern=secret_reference.PATTERN,
        description=f"by reference: {secret_reference.FORMS}",
    )


CHAT_COMMANDS: Final = frozenset(
    [
        "status",
        "tasks",
        "task",
        "why",
        "run",
        "pause",
        "resume",
        "cancel",
        "retry",
        "schedules",
        "watchers",
        "approvals",
        "approve",
        "deny",
        "edit",
        "answer",
        "defer",
        "open",
        "help",
    ]
)
"""The agent's own commands in chats, whose names no workflow can use."""


def _no_command_of_ours(name: str) -> str:
    if name in CHAT_COMMANDS or name == "start":
        raise ValueError(f"/{name} is a command of the agent's own")
    return name


class ChatKeys(_Keys):
    """A command that people type in a chat, or any text that is not a command."""

    command: Annotated[str, AfterValidator(_no_command_of_ours)] | None = Field(
        default=None, pattern=r"^[a-z][a-z0-9_-]*$", max_length=32, examples=["triage"]
    )
    text: Literal[True] | None = Field(
        default=None, description="takes what paired people write; one workflow at most"
    )
    description: str | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "ChatKeys":
        if (self.command is None) == (self.text is None):
            raise ValueError("give exactly one of command and text")
        return self


class TriggerKeys(_Keys):
    """The keys under `on:`."""

    schedule: Annotated[list[ScheduleKeys], one_or_more] = Field(default_factory=list)
    watch: Annotated[list[WatchKeys], one_or_more] = Field(default_factory=list)
    webhook: WebhookKeys | None = None
    chat: ChatKeys | None = None
    mcp: bool | None = Field(
        default=None, description="whether clients of the MCP server may start it as a tool"
    )


_NAMED_BY: Final = {
    "schedule": tuple(f"{key}_seconds" if key in DURATIONS else key for key in TIMING_KEYS),
    "watch": SOURCES,
}
"""What a trigger without an `id` is known by: its times, or its source."""


def find_twins(on: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return triggers of a compiled `on` that share their identity with an earlier one.

    Each comes as its kind, its number, and the problem in words.
    """
    seen: dict[str, str] = {}
    twins = []
    for kind, keys in _NAMED_BY.items():
        for number, trigger in enumerate(on.get(kind, [])):
            written = {key: trigger[key] for key in keys if key in trigger}
            name = trigger.get("id") or json.dumps([kind, written], sort_keys=True)
            earlier = seen.setdefault(name, f"on.{kind}[{number}]")
            if earlier == f"on.{kind}[{number}]":
                continue
            if "id" in trigger:
                problem = f"{earlier} has the id {name!r} too; each trigger needs an id of its own"
            else:
                same = "times" if kind == "schedule" else "source"
                problem = f"{earlier} has the same {same}; remove one of them, or give each an id"
            twins.append((kind, number, problem))
    return twins
