"""Checks for `agent doctor` and the page of health: can each channel be opened, and does it deliver?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from agent.config.channels import delivering
from agent.core.clock import to_iso
from agent.overview import no_notices
from agent.steps.spec.questions import CHATS
from agent.store.channels import cursors, pairings

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.channels.cursors import Cursor
    from agent.store.db.database import Connection

NOTICES: Final = "notices"
"""The finding that no channel reaches anyone."""


def channel_checks(
    settings: "Settings", connection: "Connection", *, is_running: bool
) -> Iterator[tuple[str, str, str]]:
    """Return (what, state, message) for each channel that the configuration turns on."""
    if (reason := no_notices(connection, settings)) is not None:
        yield NOTICES, "warning", f"no one is notified: {reason}"
    for name in delivering(settings.channels, settings.notify):
        cursor = cursors.cursor(connection, name)
        paired = len(pairings.listed(connection, name))
        state, message = _delivery_state(cursor, is_running=is_running)
        if state == "ok" and name in CHATS:
            message += f"; {paired} paired"
            if not paired:
                state = "warning"
                message = "no account is paired: write to the bot, then `agent pair CODE`"
        yield f"channel {name}", state, message
    host = urlsplit(settings.channels.webhook.link_base_url).hostname
    known = {"localhost", "127.0.0.1", "::1", settings.server.host, *settings.server.allowed_hosts}
    if host is not None and host not in known:
        yield (
            "channel webhook",
            "warning",
            f"links lead to {host}, which allowed_hosts in [server] does not list: they are refused",
        )


def _delivery_state(cursor: "Cursor | None", *, is_running: bool) -> tuple[str, str]:
    if cursor is None:
        return ("warning", "not used yet" + ("" if is_running else ": `agent up` starts it"))
    if cursor.trouble is not None:
        return "error", cursor.trouble
    if cursor.failures:
        return (
            "error",
            f"the last delivery failed {cursor.failures} times, next attempt at"
            f" {to_iso(cursor.retry_at)}: {cursor.error}",
        )
    return "ok", "everything is delivered" if is_running else "`agent up` starts it"
