"""The session of a command: the settings, the client of the agent, and the local database."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.cli import invocation

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.cli.client.transport import Transport
    from agent.config.discovery import Place
    from agent.config.loader import Configuration
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


def remote() -> "Transport | None":
    """Return a connection to the remote agent of `--server`; None without one."""
    from agent.cli.output import terminal

    url = invocation.server_url()
    if url is None:
        return None
    from agent.cli.client.transport import Transport

    return Transport(url, _load(), notify=terminal.note)


def any_settings() -> "Settings":
    """Read the configuration, for a command that works on a remote agent too."""
    return _load()


def settings() -> "Settings":
    """Read the configuration, for a command that works on this machine only."""
    require_local()
    return _load()


def database() -> "Database":
    """Return the local database; where there is none yet, the error names the agents elsewhere."""
    from agent.cli import other_agents

    return other_agents.open_database(settings())


@contextmanager
def reading() -> "Iterator[Connection]":
    """Open the local database for reading."""
    with database().connect("reader") as connection:
        yield connection


def audit(what: str, subject: str | None = None, outcome: str = "done", **details: object) -> None:
    """Record a command that this terminal has carried out."""
    from agent.core.logs import audit as audit_log

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

    The engine marks the environment of its processes. A program that removes the mark is not noticed.
    """
    from agent.steps.process.processes import is_started_by_engine

    if is_started_by_engine():
        from agent.cli.errors import CommandError, Exit

        raise CommandError(
            f"a program that the agent has started may not {what}: a person does that",
            Exit.REFUSED,
        )


def configuration() -> "Configuration":
    """Read the configuration of this command, with the sources of its values."""
    from agent.config import discovery, loader

    place = discovery.find(invocation.config_file, os.environ)
    configuration = loader.read(place, os.environ, invocation.overrides)
    if place not in _described:
        _described.add(place)
        _describe(configuration)
    return configuration


_described: "set[Place]" = set()
"""Places that were already printed."""


def _describe(configuration: "Configuration") -> None:
    """Print which configuration and database are used, if asked to or if that may surprise."""
    from agent.cli.output import terminal
    from agent.core.logs.logging import redact_text

    if configuration.place.passed_over is not None:
        terminal.note(
            f"using the database of {configuration.place.base}, which has no configuration;"
            f" {configuration.place.passed_over} further up is not used"
        )
    if invocation.is_verbose:
        terminal.note(f"configuration: {configuration.place.describe()}")
        if not invocation.server_url():
            terminal.note(f"database: {redact_text(configuration.settings.database_url)}")


def _load() -> "Settings":
    from agent import __version__
    from agent.config import discovery, quick_settings

    place = discovery.find(invocation.config_file, os.environ)
    if invocation.overrides or invocation.is_verbose or place.passed_over is not None:
        return configuration().settings
    return quick_settings.settings_at(
        place.base, place.file, os.environ, __version__, lambda: configuration().settings
    )
