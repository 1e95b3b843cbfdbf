"""What every command starts with: the configuration, and the agent that it is for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database

_config_file: str | None = None
_server: str | None = None


def begin(config: str | None, server: str | None) -> None:
    """Remember which configuration `--config` named, and which agent `--server` did."""
    global _config_file, _server  # noqa: PLW0603  (one process runs one command)
    _config_file = config
    _server = server


@contextmanager
def agent() -> "Iterator[AgentClient]":
    """Give the agent that the command is for: by its database, or at the server's address."""
    opened: AgentClient
    if url := _address():
        from agent.cli.client.remote import RemoteClient

        opened = RemoteClient(url, _load())
    else:
        from agent.cli.client.local import LocalClient

        opened = LocalClient(_load())
    try:
        yield opened
    finally:
        opened.close()


def server_option() -> str:
    """Return what a suggested command needs to be for the same agent."""
    return f" --server {_server}" if _server else ""


def settings() -> "Settings":
    """Read the configuration, for a command that works on this machine alone."""
    stay_here()
    return _load()


def existing_database() -> "Database":
    """Return the database; one that is not there yet is not made."""
    from agent import bootstrap

    return bootstrap.open_database(settings())


@contextmanager
def reading() -> "Iterator[Connection]":
    """Open the existing database for reading."""
    with existing_database().connect("reader") as connection:
        yield connection


def audit(what: str, subject: str | None = None, outcome: str = "done", **details: object) -> None:
    """Record a command of this terminal that has been carried out."""
    from agent.cli.output import terminal
    from agent.core import audit as audit_log

    audit_log.configure(settings().home)
    who = f"terminal:{terminal.user()}"
    audit_log.record(who, "command line", what, outcome, subject=subject, **details)


def stay_here() -> None:
    """Refuse what cannot be done to an agent elsewhere."""
    if _address():
        from agent.cli.errors import CommandError

        raise CommandError(
            "this works on the files and the database of this machine, not on an agent elsewhere:"
            " leave out --server (or AGENT_SERVER)"
        )


def _address() -> str | None:
    return _server or os.environ.get("AGENT_SERVER") or None


def _load() -> "Settings":
    from agent.config.loader import load

    return load(_config_file)
