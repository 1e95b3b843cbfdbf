"""The command and environment of a service, for every service manager."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from agent.cli.errors import CommandError, Exit
from agent.config.settings import Settings

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}"


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    """The process that a service manager starts and watches."""

    name: str
    command: tuple[str, ...]
    directory: Path
    """Where it runs: that of the configuration, which relative paths start from."""
    log_file: Path
    """Where its output goes, if the manager keeps no log."""
    path: str
    """The variable PATH: commands of steps are found as they are in this terminal."""
    memory_mb: int
    stop_seconds: float
    """How long it may take to stop."""
    watchdog_seconds: float
    """How long it may be silent."""


class ServiceManager(Protocol):
    """Installs a service and asks about it; the functions raise `CommandError`."""

    def text(self, service: ServiceDefinition) -> str:
        """Return the file that defines a service."""

    def file(self, name: str) -> Path:
        """Return where that file is."""

    def install(self, service: ServiceDefinition, *, is_started: bool) -> None:
        """Write the file, and start the service now and at each login."""

    def uninstall(self, name: str) -> None:
        """Stop the service and remove its file."""

    def state(self, name: str) -> dict[str, str]:
        """Return the manager's state of a service, for programs."""

    def logs_command(
        self, name: str, log_file: Path, lines: int, *, is_following: bool
    ) -> list[str]:
        """Return the command that prints its log."""


def define(settings: Settings, name: str, memory_mb: int) -> ServiceDefinition:
    """Return the service of a configuration."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise CommandError(f"{name!r} cannot be the name of a service: use letters, digits, . _ -")
    base = settings.base.absolute()
    config = (settings.file or base / "config.toml").absolute()
    if settings.file is None or not config.is_file():
        raise CommandError(
            f"there is no configuration at {config}: `agent init` creates one, and a service needs it",
            Exit.REFUSED,
        )
    lease = settings.engine.lease_seconds
    return ServiceDefinition(
        name=name,
        command=(*_program(), "--config", str(config), "up"),
        directory=base,
        log_file=(settings.home / f"{name}.log").absolute(),
        path=os.environ.get("PATH", os.defpath),
        memory_mb=memory_mb,
        # The daemon ends itself ten seconds after its own limit.
        stop_seconds=settings.engine.shutdown_seconds + 20,
        # It may be silent for a lease before it stops to feed the watchdog.
        watchdog_seconds=max(120.0, 2 * lease),
    )


def manager_of(platform: str = sys.platform) -> ServiceManager:
    """Return the manager of services of this system."""
    if platform == "darwin":
        from agent.cli.service.launchd import Launchd

        return Launchd()
    if platform == "linux":
        from agent.cli.service.systemd import Systemd

        return Systemd()
    raise CommandError(
        "services are known for systemd and launchd; elsewhere let your own supervisor run `agent up`",
        Exit.REFUSED,
    )


def _program() -> tuple[str, ...]:
    """Return the installed program, or this interpreter with the module."""
    script = Path(sys.executable).with_name("agent")
    return (str(script),) if script.is_file() else (sys.executable, "-m", "agent.cli")
