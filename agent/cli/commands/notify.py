"""`agent notify`: whether notices reach the people whom they are for."""

import asyncio
from typing import TYPE_CHECKING

import typer

from agent.cli import session
from agent.cli.options import JsonOption

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.db.database import Database

app = typer.Typer(rich_markup_mode=None, help="Try whether notices arrive.")


@app.command("test")
def test(*, as_json: JsonOption = False) -> None:
    """Send a test notice to everyone who gets notices.

    To each address of operator in [notify], each paired account, and the webhook. The exit code is 3
    where one of them cannot be reached, or no one is notified.
    """
    from agent import overview
    from agent.cli.errors import Exit
    from agent.cli.output import terminal

    settings, database = session.settings(), session.database()
    with database.connect("reader") as connection:
        reason = overview.no_notices(connection, settings)
    results = asyncio.run(_sent(settings, database))
    if as_json:
        terminal.print_json({"no_notices": reason, "sent": results})
    else:
        if reason is not None:
            terminal.print_line(f"no one is notified: {reason}", "yellow")
        for result in results:
            if (problem := result["problem"]) is None:
                terminal.print_line(f"✓ {result['to']}: sent")
            else:
                terminal.print_line(f"✗ {result['to']}: {problem}", "red")
    if reason is not None or any(result["problem"] for result in results):
        raise SystemExit(int(Exit.REFUSED))


async def _sent(settings: "Settings", database: "Database") -> list[dict[str, str | None]]:
    from agent.channels import supervisor
    from agent.channels.channel import DeliveryError, Notification
    from agent.channels.secret_ref import SecretError
    from agent.config.channels import NOTIFY_PREFIX, TEST_NOTICE
    from agent.core.ids import new_id
    from agent.core.redaction import everywhere
    from agent.store.channels import pairings

    notification = Notification(f"test-{new_id()}", TEST_NOTICE, database.clock.now(), None)
    used = settings.channels.turned_on
    with database.connect("reader") as connection:
        paired = [
            f"{NOTIFY_PREFIX}{account.channel}:{account.identity}"
            for account in pairings.listed(connection)
            if account.channel in used
        ]
    operator = [f"{NOTIFY_PREFIX}{address}" for address in settings.notify.operator]
    names = [*dict.fromkeys([*operator, *paired]), *(name for name in used if name == "webhook")]
    results: list[dict[str, str | None]] = []
    for name in names:
        problem = None
        try:
            channel = supervisor.open_channel(name, settings, database)
            try:
                await channel.deliver(notification)
            finally:
                await channel.close()
        except (DeliveryError, SecretError) as error:
            problem = everywhere.redact(str(error))
        results.append({"to": name.removeprefix(NOTIFY_PREFIX), "problem": problem})
    return results
