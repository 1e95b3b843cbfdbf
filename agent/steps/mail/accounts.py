"""The configured account of a step, and its mailbox over IMAP."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from agent.config.mail import MailSettings
from agent.steps.attempt.context import StepContext
from agent.steps.mail.imap_connection import ImapConnection
from agent.steps.types.errors import DefiniteFailure
from agent.workflows.diagnostics import did_you_mean

Result = TypeVar("Result")


def account_of(name: str | None, context: StepContext) -> tuple[str, MailSettings]:
    """Return the account that a step names, or the only one; raise `DefiniteFailure`."""
    accounts = context.services.mail
    if not accounts:
        raise refused("no account is configured: add [mail.NAME] to the configuration")
    known = ", ".join(accounts)
    if name is None:
        if len(accounts) > 1:
            raise refused(f"account: there are several, name one of them: {known}")
        return next(iter(accounts.items()))
    if name not in accounts:
        hint = did_you_mean(name, accounts) or f"there are {known}"
        raise refused(f"account: there is no [mail.{name}] in the configuration; {hint}")
    return name, accounts[name]


async def in_mailbox(
    account: MailSettings,
    context: StepContext,
    seconds: float,
    function: Callable[[ImapConnection], Result],
) -> Result:
    """Call a blocking function in a session with an account's mailbox; raise `MailboxError`."""
    keys = account.imap_keys()
    assert keys is not None
    services = context.services
    # No folder is opened before it is known which one is meant.
    connection = ImapConnection({**keys, "folder": ""}, services.limits.allow_private, seconds)
    try:
        async with asyncio.timeout(seconds):
            return await services.threads.start(
                lambda: connection.session(lambda: function(connection))
            )
    finally:
        connection.abort()


def refused(message: str) -> DefiniteFailure:
    """Return the failure of a step that cannot be done as it is written."""
    return DefiniteFailure(f"mail: {message}", code="bad_mail", kind="input", may_retry=False)
