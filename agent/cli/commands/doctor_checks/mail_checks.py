"""The checks of `agent doctor` on mail accounts. Nothing is sent, and no server is asked."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.config.mail import MailSettings
    from agent.config.settings import Settings
    from agent.workflows.directory import Entry


def mail_checks(settings: "Settings", entries: "Iterable[Entry]") -> Iterator[tuple[str, str, str]]:
    """Yield (what, state, message) for each account, and for steps that name none of them."""
    for name, account in settings.mail.items():
        problems = list(_problems(name, account))
        for problem in problems:
            yield f"mail {name}", "error", problem
        if not problems:
            yield f"mail {name}", *_summary(account)
    for problem in _unknown_accounts(settings, entries):
        yield "mail", "error", problem


def _summary(account: "MailSettings") -> tuple[str, str]:
    if account.imap is None:
        return (
            "ok",
            f"sends as {account.from_}; without an imap section a person is asked about a mail whose"
            " result was lost",
        )
    return "ok", f"sends as {account.from_}; {account.imap.host} shows what was sent"


def _problems(name: str, account: "MailSettings") -> Iterator[str]:
    from agent.channels.secret_ref import SecretError, read_secret
    from agent.steps.spec.mail_addresses import parse_mailbox

    needed = [("aiosmtplib", "aiosmtplib")]
    if account.imap is not None:
        needed.append(("imap_tools", "imap-tools"))
    for module, package in needed:
        if find_spec(module) is None:
            yield f"it needs the package {package}: `python -m pip install {package}`"
    for address in (account.from_, *account.also_from):
        try:
            parse_mailbox(address)
        except ValueError as error:
            yield f"from or also_from: {error}"
    passwords = {"password": account.password}
    if account.imap is not None:
        passwords["imap.password"] = account.imap.password
    for key, reference in passwords.items():
        try:
            if reference:
                read_secret(reference)
        except SecretError as error:
            yield f"{key} of [mail.{name}]: {error}"


def _unknown_accounts(settings: "Settings", entries: "Iterable[Entry]") -> Iterator[str]:
    from agent.workflows.templates.templates import is_template

    known = ", ".join(settings.mail) or "none"
    for entry in entries:
        for step in entry.workflow.graph.steps if entry.workflow is not None else ():
            if step.kind not in ("mail", "mailbox"):
                continue
            account = step.config.get("account")
            is_missing = isinstance(account, str) and account not in settings.mail
            where = f"step {step.name} of {entry.name}"
            if account is None and len(settings.mail) != 1:
                yield f"{where} names no account, and there is not exactly one ({known})"
            elif is_missing and not is_template(str(account)):
                yield f"{where} names the account {account!r}, which is missing ({known})"
            elif step.kind == "mailbox":
                name = next(iter(settings.mail)) if account is None else str(account)
                found = settings.mail.get(name)
                if found is not None and found.imap is None:
                    yield f"{where} needs [mail.{name}.imap], the mailbox of the account"
