"""A user unit of systemd."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from agent.cli.errors import CommandError, Exit
from agent.cli.service.definition import ServiceDefinition

_PROPERTIES: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "MainPID",
    "StatusText",
    "Result",
    "NRestarts",
    "MemoryCurrent",
    "ExecMainStatus",
)

_UNIT: Final = """\
# Made by `agent service install`. To change it: `systemctl --user edit {name}`.
[Unit]
Description=Agent of {directory}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
WorkingDirectory={directory}
Environment={path}
# A wrong configuration (2), or an agent that runs already (3), is no reason to start again.
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 3
# The agent says that it is alive only while its event loop runs and its commits are answered.
WatchdogSec={watchdog:g}
TimeoutStartSec=600
TimeoutStopSec={stop:g}
# SIGTERM to the agent alone: it ends its steps' commands itself.
KillMode=mixed

UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
MemoryMax={memory}M
TasksMax=4096
LimitNOFILE=65536

[Install]
WantedBy=default.target
"""


class Systemd:
    """Drives the user's systemd."""

    def text(self, service: ServiceDefinition) -> str:
        """Return the unit."""
        return _UNIT.format(
            name=service.name,
            directory=_escaped(str(service.directory)),
            # Only a command expands variables.
            command=" ".join(_quoted(word).replace("$", "$$") for word in service.command),
            path=_quoted(f"PATH={service.path}"),
            watchdog=service.watchdog_seconds,
            stop=service.stop_seconds,
            memory=service.memory_mb,
        )

    def file(self, name: str) -> Path:
        """Return where the unit is."""
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(base) / "systemd" / "user" / f"{name}.service"

    def install(self, service: ServiceDefinition, *, is_started: bool) -> None:
        """Write the unit, and start it now and at each login."""
        _require_running()
        file = self.file(service.name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.text(service), encoding="utf-8")
        _control("daemon-reload")
        _control("enable", *(["--now"] if is_started else []), service.name)
        if is_started:
            # A unit that ran before has the old file.
            _control("restart", service.name)

    def uninstall(self, name: str) -> None:
        """Stop the service and remove its unit."""
        _require_running()
        _control("disable", "--now", name)
        self.file(name).unlink(missing_ok=True)
        _control("daemon-reload")

    def state(self, name: str) -> dict[str, str]:
        """Return systemd's state of the service."""
        _require_running()
        text = _control("show", name, f"--property={','.join(_PROPERTIES)}")
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {key: value for key, _, value in pairs}

    def logs_command(
        self, name: str, log_file: Path, lines: int, *, is_following: bool
    ) -> list[str]:
        """Return the command that prints the journal of the service."""
        follow = ["--follow"] if is_following else ["--no-pager"]
        return [
            "journalctl",
            "--user",
            f"--unit={name}",
            f"--lines={lines}",
            "--output=cat",
            *follow,
        ]


def _require_running() -> None:
    """Raise `CommandError` where no systemd runs for this user."""
    advice = (
        "`agent service install --print` shows the unit; without systemd, let another supervisor run"
        " `agent up`"
    )
    if shutil.which("systemctl") is None:
        raise CommandError(f"systemd is not installed here: {advice}", Exit.REFUSED)
    completed = _run("show-environment")
    if completed.returncode != 0:
        reason = (completed.stderr.strip().splitlines() or ["it does not answer"])[-1]
        raise CommandError(f"systemd does not run for this user ({reason}): {advice}", Exit.REFUSED)


def _control(*arguments: str) -> str:
    completed = _run(*arguments)
    if completed.returncode != 0:
        raise CommandError(
            f"systemctl --user {' '.join(arguments)} failed: {completed.stderr.strip()}",
            Exit.REFUSED,
        )
    return completed.stdout


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemctl", "--user", *arguments], capture_output=True, text=True, check=False
    )


def _quoted(text: str) -> str:
    """Return a word as a unit's file has it: systemd expands %, and reads quotes."""
    escaped = _escaped(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
