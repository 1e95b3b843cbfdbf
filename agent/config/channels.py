"""The sections of the configuration about channels: where people get notifications and questions."""

from typing import Annotated

from agent.config.models import REFERENCE, Section, section
from agent.core.quick_classes.quick_fields import Field, field_validator, model_validator
from agent.core.secret_reference import ANY, FORMS

Address = Annotated[
    str,
    Field(
        pattern=r"^(telegram:(-?[0-9]+|@\w+)|slack:[A-Z][A-Z0-9]+|terminal:[^\s:]+"
        rf"|apprise:({ANY}))$"
    ),
]
"""A recipient of messages."""


OUTAGES = ("artifacts.unreachable", "artifacts.reachable")
"""The events about the store of large values."""

TRIGGER_NOTICES = (
    "schedule.missed",
    "schedule.paused",
    "watcher.failed",
    "watcher.silent",
    "watcher.recovered",
    "watcher.reset",
)
"""The events about schedules and watchers that need a person's attention, or no longer do."""

UPKEEP_NOTICES = ("disk.low", "disk.recovered", "backup.failed", "backup.recovered")
"""The events about disk space and backups."""

NOTIFIED_EVENTS = (
    "approval.requested",
    "approval.renewed",
    "approval.reminded",
    "approval.decided",
    "approval.expired",
    "approval.withdrawn",
    "task.failed",
    *OUTAGES,
    *TRIGGER_NOTICES,
    *UPKEEP_NOTICES,
)
"""The events that channels send notifications of."""

PAIRED = "account.paired"
"""The event of a chat account that was paired."""

TEST_NOTICE = "notice.test"
"""What `agent notify test` sends."""

ENDS = ("task.succeeded", "task.failed", "task.canceled")
"""The events of a task's end, which a chat reports to the person who started it there."""

NOTIFIABLE = (
    *NOTIFIED_EVENTS,
    "task.created",
    "task.started",
    "task.paused",
    "task.resumed",
    "task.succeeded",
    "task.canceled",
)
"""The events that a webhook may ask for."""


class TelegramSettings(Section):
    """A Telegram bot. People must be paired first: write to it, then `agent pair CODE`."""

    token: str = Field(
        default="",
        pattern=REFERENCE,
        description=f"Where the bot's token is: {FORMS}. Empty: no bot.",
    )
    api_url: str = Field(
        default="https://api.telegram.org",
        pattern=r"^https?://[^/\s]+(/[^\s]*)?$",
        description="Where the Bot API is.",
    )
    poll_seconds: int = Field(
        default=25, ge=0, le=50, description="How long one request waits for messages."
    )


class SlackSettings(Section):
    """A Slack app in Socket Mode; needs the libraries slack-sdk and aiohttp. Pairing is as with Telegram."""

    bot_token: str = Field(
        default="",
        pattern=REFERENCE,
        description=f"Where the bot's token (xoxb-…) is: {FORMS}. Empty: no app.",
    )
    app_token: str = Field(
        default="",
        pattern=REFERENCE,
        description="Where the app-level token (xapp-…, with connections:write) is.",
    )
    api_url: str = Field(
        default="https://slack.com/api",
        pattern=r"^https?://[^/\s]+(/[^\s]*)?$",
        description="Where the Web API is.",
    )

    @model_validator(mode="after")
    def _has_both(self) -> "SlackSettings":
        if bool(self.bot_token) != bool(self.app_token):
            raise ValueError("bot_token and app_token go together")
        return self


class WebhookSettings(Section):
    """Notices to your own program, signed by the Standard Webhooks scheme."""

    url: str = Field(
        default="", pattern=r"^$|^https?://[^\s]+$", description="Where they go. Empty: nowhere."
    )
    secret: str = Field(
        default="",
        pattern=REFERENCE,
        description=f"Where the secret is (whsec_ and base64): {FORMS}.",
    )
    link_base_url: str = Field(
        default="",
        pattern=r"^$|^https?://[^\s]+$",
        description="Under which address people reach the HTTP API, for links that answer a"
        " question. Empty: no links.",
    )
    link_hours: float = Field(
        default=24.0, gt=0, le=8760, description="How long such a link is valid."
    )
    events: list[str] = Field(
        default_factory=lambda: list(NOTIFIED_EVENTS), description="The events to send."
    )

    @field_validator("events")
    @classmethod
    def _are_known(cls, events: list[str]) -> list[str]:
        for event in events:
            if event not in NOTIFIABLE:
                raise ValueError(
                    f"{event!r} is not an event that can be sent: {', '.join(NOTIFIABLE)}"
                )
        return events

    @model_validator(mode="after")
    def _is_signed(self) -> "WebhookSettings":
        if self.url and not self.secret:
            raise ValueError(
                "url needs secret: the receiver could not verify an unsigned notification"
            )
        return self


class NotifySettings(Section):
    """Who gets notices, and whom messages of steps to `operator` reach."""

    operator: list[Address] = Field(
        default_factory=list,
        description="Each gets every notice (questions, failures, broken watchers, low disk); and one"
        ' of them gets what `to: operator` sends. As in ["telegram:1234", "slack:U0123ABCD",'
        ' "apprise:env:ALERTS"]. Empty: every paired account with the scope operate.',
    )
    on_failure: str = Field(
        default="message",
        pattern=r"^(message|workflow:[^\s:]+)$",
        description="What follows when a task of any workflow fails: message (a notice), or"
        " workflow:NAME, which is started besides, with the failure as its trigger.",
    )

    @property
    def failure_workflow(self) -> str | None:
        """The workflow that is started when a task fails."""
        return self.on_failure.partition(":")[2] or None


NOTIFY_PREFIX = "notify:"
"""Begins the names of the channels of `operator`, which end with the address."""
FAILURE_HOOK = "on_failure"
"""The name of the channel that starts the workflow of `on_failure`."""


class ChannelSettings(Section):
    """Where people get notifications and questions."""

    telegram: TelegramSettings = section()
    slack: SlackSettings = section()
    webhook: WebhookSettings = section()

    @property
    def turned_on(self) -> list[str]:
        """The names of the channels that are used."""
        is_on = {
            "telegram": bool(self.telegram.token),
            "slack": bool(self.slack.bot_token),
            "webhook": bool(self.webhook.url),
        }
        return [name for name, used in is_on.items() if used]


def delivering(channels: ChannelSettings, notify: NotifySettings) -> list[str]:
    """Return the names of all channels that events are delivered to."""
    addresses = [f"{NOTIFY_PREFIX}{address}" for address in dict.fromkeys(notify.operator)]
    return [*channels.turned_on, *addresses, *([FAILURE_HOOK] if notify.failure_workflow else [])]
