"""What commands start with: the settings, the client of the agent, and the local database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.cli import invocation

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database


@contextmanager
def client() -> "Iterator[AgentClient]":
    """Open a client: of a remote agent with `--server`, else of the database of this machine."""
    from agent.cli.output import terminal

    opened: AgentClient
    if url := invocation.server_url():
        from agent.cli.client.remote import RemoteClient

        opened = RemoteClient(url, _load(), notify=terminal.note)
    else:
        from agent.cli.client.local import LocalClient

        opened = LocalClient(_load(), notify=terminal.note)
    try:
        yield opened
    finally:
        opened.close()


def settings() -> "Settings":
    """Read the configuration, for a command that works on this machine only."""
    require_local()
    return _load()


def database() -> "Database":
    """Return the local database; raise `StoreError` where there is none yet."""
    from agent import bootstrap

    return bootstrap.open_database(settings())


@contextmanager
def reading() -> "Iterator[Connection]":
    """Open the local database for reading."""
    with database().connect("reader") as connection:
        yield connection


def audit(what: str, subject: str | None = None, outcome: str = "done", **details: object) -> None:
    """Record a command that this terminal has carried out."""
    from agent.core import audit as audit_log

    audit_log.configure(settings().home)
    who = f"terminal:{invocation.user()}"
    audit_log.record(who, "command line", what, outcome, subject=subject, **details)


def require_local() -> None:
    """Raise `CommandError` with `--server`: this command needs the files of this machine."""
    if invocation.server_url():
        from agent.cli.errors import CommandError

        raise CommandError(
            "this command works on the files and the database of this machine, not on a remote"
            " agent: leave out --server (or AGENT_SERVER)"
        )


def require_person(what: str) -> None:
    """Raise `CommandError` in a program that a step or a watcher has started: people decide, not models.

    The engine marks the environment of what it starts. A program that removes the mark is not noticed.
    """
    from agent.steps.process.processes import is_started_by_engine

    if is_started_by_engine():
        from agent.cli.errors import CommandError, Exit

        raise CommandError(
            f"a program that the agent has started may not {what}: a person does that",
            Exit.REFUSED,
        )


def _load() -> "Settings":
    from agent.config.loader import load

    return load(invocation.config_file)
