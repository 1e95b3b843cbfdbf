"""A user agent of launchd, on macOS."""

import os
import plistlib
import subprocess
from pathlib import Path
from typing import Final

from agent.cli.errors import CommandError, Exit
from agent.cli.service.definition import ServiceDefinition

_PREFIX: Final = "local."


class Launchd:
    """Drives the user's launchd."""

    def text(self, service: ServiceDefinition) -> str:
        """Return the property list."""
        document = {
            "Label": _PREFIX + service.name,
            "ProgramArguments": list(service.command),
            "WorkingDirectory": str(service.directory),
            "EnvironmentVariables": {"PATH": service.path},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 5,
            "ExitTimeOut": int(service.stop_seconds),
            "Umask": 0o077,
            "ProcessType": "Background",
            "SoftResourceLimits": {"NumberOfFiles": 65_536},
            "StandardOutPath": str(service.log_file),
            "StandardErrorPath": str(service.log_file),
        }
        return plistlib.dumps(document, sort_keys=False).decode()

    def file(self, name: str) -> Path:
        """Return where the property list is."""
        return Path.home() / "Library" / "LaunchAgents" / f"{_PREFIX}{name}.plist"

    def install(self, service: ServiceDefinition, *, is_started: bool) -> None:
        """Write the property list, and start the service now and at each login."""
        file = self.file(service.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        _run("bootout", f"{_domain()}/{_PREFIX}{service.name}")
        file.write_text(self.text(service), encoding="utf-8")
        if is_started:
            _control("bootstrap", _domain(), str(file))

    def uninstall(self, name: str) -> None:
        """Stop the service and remove its property list."""
        _run("bootout", f"{_domain()}/{_PREFIX}{name}")
        self.file(name).unlink(missing_ok=True)

    def state(self, name: str) -> dict[str, str]:
        """Return launchd's state of the service."""
        text = _control("print", f"{_domain()}/{_PREFIX}{name}")
        pairs = (line.strip().partition(" = ") for line in text.splitlines() if " = " in line)
        return {key: value for key, _, value in pairs if key in ("state", "pid", "last exit code")}

    def logs_command(
        self, name: str, log_file: Path, lines: int, *, is_following: bool
    ) -> list[str]:
        """Return the command that prints the log file of the service."""
        return ["tail", "-n", str(lines), *(["-f"] if is_following else []), str(log_file)]


def _domain() -> str:
    return f"gui/{os.getuid()}"


def _control(*arguments: str) -> str:
    completed = _run(*arguments)
    if completed.returncode != 0:
        reason = completed.stderr.strip()
        raise CommandError(f"launchctl {' '.join(arguments)} failed: {reason}", Exit.REFUSED)
    return completed.stdout


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            ["launchctl", *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise CommandError("launchctl is not here", Exit.REFUSED) from None
