"""The agent as a service: the files, and how the managers are driven."""

import json
import os
import plistlib
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from agent.cli.errors import CommandError
from agent.cli.service import definition
from agent.cli.service.definition import ServiceDefinition
from agent.cli.service.launchd import Launchd
from agent.cli.service.systemd import Systemd
from agent.config.loader import load
from tests.support.cli import Cli

FAKE = """\
#!/bin/sh
echo "$(basename "$0") $*" >> "$FAKE_LOG"
case "$*" in
  *show-environment*) exit "${FAKE_BUS:-0}" ;;
  *"show agent"*) printf 'ActiveState=active\\nMainPID=17\\nStatusText=3 attempts in flight\\n' ;;
esac
"""


@pytest.fixture
def service(tmp_path: Path) -> ServiceDefinition:
    """Return a service whose paths need quotes."""
    base = tmp_path / 'my "agent" 100%'
    base.mkdir()
    (base / "config.toml").write_text("[engine]\nshutdown_seconds = 30.0\nlease_seconds = 90.0\n")
    return definition.define(load(base / "config.toml"), "agent", 512)


@pytest.fixture
def calls(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put managers on the PATH that record how they are called; return the record."""
    programs, record = tmp_path / "programs", tmp_path / "calls"
    programs.mkdir()
    for name in ("systemctl", "journalctl"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cli.environment |= {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "FAKE_LOG": str(record),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    return record


def test_the_unit_is_hardened_and_watched(service: ServiceDefinition) -> None:
    """It may gain no privileges, has its own /tmp and a memory limit, and is restarted."""
    lines = Systemd().text(service).splitlines()
    for line in (
        "Type=notify",
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "MemoryMax=512M",
        "Restart=on-failure",
        "WatchdogSec=180",
        "TimeoutStopSec=50",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ):
        assert line in lines
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    assert r'my \"agent\" 100%%/config.toml" "up"' in command


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(service: ServiceDefinition, tmp_path: Path) -> None:
    """Its own checker finds nothing to complain about."""
    file = tmp_path / "agent.service"
    file.write_text(Systemd().text(service))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_property_list_is_one(service: ServiceDefinition) -> None:
    """Launchd restarts the agent unless it ended by itself, and keeps its output."""
    document = plistlib.loads(Launchd().text(service).encode())
    assert document["ProgramArguments"] == list(service.command)
    assert document["WorkingDirectory"] == str(service.directory)
    assert document["KeepAlive"] == {"SuccessfulExit": False}
    assert document["StandardErrorPath"].endswith("agent.log")


def test_a_service_needs_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a name that both managers accept."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match="no configuration"):
        definition.define(load(), "agent", 512)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(CommandError, match="cannot be the name"):
        definition.define(load("config.toml"), "../evil", 512)
    with pytest.raises(CommandError, match="your own supervisor"):
        definition.manager_of("sunos")
    assert isinstance(definition.manager_of("darwin"), Launchd)


def test_the_commands_drive_systemd(cli: Cli, calls: Path) -> None:
    """Install, ask, read the log and uninstall; the unit is where systemd looks."""
    cli("init")
    shown = cli("service", "install", "--print").out
    assert "ExecStart=" in shown
    assert not calls.exists()
    unit = Systemd().file("agent")
    assert str(unit) in cli("service", "install").out
    assert unit.read_text() == shown
    status = cli("service", "status", "--json").json
    assert (status["ActiveState"], status["StatusText"]) == ("active", "3 attempts in flight")
    cli("service", "logs", "--tail", "5")
    assert str(unit) in cli("service", "uninstall").out
    assert not unit.exists()
    made = [line for line in calls.read_text().splitlines() if "show-environment" not in line]
    assert made == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now agent",
        "systemctl --user restart agent",
        made[3],
        "journalctl --user --unit=agent --lines=5 --output=cat --no-pager",
        "systemctl --user disable --now agent",
        "systemctl --user daemon-reload",
    ]
    assert made[3].startswith("systemctl --user show agent --property=")


@pytest.mark.usefixtures("calls")
def test_without_systemd_the_command_says_so(cli: Cli) -> None:
    """Nothing is written, and the message says what else can be done."""
    cli("init")
    cli.environment["FAKE_BUS"] = "1"
    result = cli("service", "install", code=3)
    assert "systemd does not run for this user" in result.err
    assert "--print" in result.err
    assert not Systemd().file("agent").exists()
    missing = json.loads(cli("service", "status", "--json", code=3).out)
    assert "there is no service" in missing["error"]["message"]
    assert "there is no service" in cli("service", "logs", code=3).err
