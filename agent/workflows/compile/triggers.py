"""The keys under `on:`: what starts a workflow by itself."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agent.workflows.compile.field_types import PositiveDuration, one_or_more

_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def _is_cron(expression: str) -> str:
    """Check a cron expression by cron's own rules, and that it matches any time."""
    plain = _MACROS.get(expression.strip(), expression.strip())
    if len(plain.split()) != 5:
        raise ValueError(
            f"{expression!r} is not a cron expression; it has five fields (minute, hour, day, "
            "month, weekday), such as '0 8 * * 1-5'"
        )
    try:
        next(CronSim(plain, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        raise ValueError(f"{expression!r} is not a cron expression: {error}") from None
    except StopIteration:
        raise ValueError(f"{expression!r} matches no time") from None
    return plain


def _is_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except Exception:
        raise ValueError(
            f"there is no time zone {name!r}; write one such as Europe/Berlin or UTC"
        ) from None
    return name


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ScheduleKeys(_Keys):
    """A time table: a cron expression, or an interval."""

    cron: Annotated[str, Field(max_length=200), AfterValidator(_is_cron)] | None = None
    every: PositiveDuration | None = None
    timezone: Annotated[str, Field(max_length=100), AfterValidator(_is_timezone)] | None = Field(
        default=None, description="such as Europe/Berlin; default: the machine's own"
    )
    catch_up: Literal["none", "latest", "all"] = Field(
        default="latest", description="which missed runs to start afterwards"
    )
    window: PositiveDuration | None = Field(
        default=None, description="how late a missed run may still start"
    )
    overlap: Literal["skip", "queue", "allow"] = Field(
        default="skip", description="what to do while the last run is still open"
    )
    inputs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> "ScheduleKeys":
        if (self.cron is None) == (self.every is None):
            raise ValueError("give exactly one of cron and every")
        return self


class WatchKeys(_Keys):
    """Something that is polled: a feed, a page, or a directory."""

    feed: str | None = Field(default=None, min_length=1, max_length=8192)
    url: str | None = Field(default=None, min_length=1, max_length=8192)
    path: str | None = Field(default=None, min_length=1, max_length=4096)
    every: PositiveDuration = Field(default=900.0, validate_default=False)
    inputs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way(self) -> "WatchKeys":
        if sum(way is not None for way in (self.feed, self.url, self.path)) != 1:
            raise ValueError("give exactly one of feed, url and path")
        for address in (self.feed, self.url):
            if address is not None and not address.startswith(("http://", "https://")):
                raise ValueError(f"{address!r} is not an address that starts with https://")
        return self


class WebhookKeys(_Keys):
    """A call from outside, and how its origin is verified."""

    verify: Literal["standard", "github", "stripe", "slack", "token"] = "standard"
    secret: str = Field(
        pattern=r"^(env|file):.+$", description="by reference: env:NAME or file:PATH"
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
        "approvals",
        "approve",
        "deny",
        "edit",
        "answer",
        "defer",
        "help",
    ]
)
"""The agent's own commands in chats, whose names no workflow can use."""


def _no_command_of_ours(name: str) -> str:
    if name in CHAT_COMMANDS or name == "start":
        raise ValueError(f"/{name} is a command of the agent's own")
    return name


class ChatKeys(_Keys):
    """A command that people type in a chat."""

    command: Annotated[str, AfterValidator(_no_command_of_ours)] = Field(
        pattern=r"^[a-z][a-z0-9_-]*$", max_length=32, examples=["triage"]
    )
    description: str | None = None


class TriggerKeys(_Keys):
    """The keys under `on:`."""

    schedule: Annotated[list[ScheduleKeys], one_or_more] = Field(default_factory=list)
    watch: Annotated[list[WatchKeys], one_or_more] = Field(default_factory=list)
    webhook: WebhookKeys | None = None
    chat: ChatKeys | None = None


def inactive_triggers(on: dict[str, Any], active: frozenset[str] = frozenset()) -> list[str]:
    """Return the declared triggers that this agent does not act on, for `validate` and the daemon."""
    return [name for name in on if name not in active]
