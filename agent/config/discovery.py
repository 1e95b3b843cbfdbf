"""Where the configuration is: named, at or above the current directory, or the user's own.

The nearest one wins, as with git. A directory whose `data/agent.db` exists without a configuration is
an agent too: a command below it must not create a second database.

A file above the current directory counts only if this user, root or a trusted user owns it: the
configuration names commands that are run. And `config.toml` is a common name: a file above that has no
section of ours belongs to another program.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from agent.core.files.file_trust import ROOT, trust_in, user_name
from agent.core.quick_classes.quick_dataclasses import dataclass

DEFAULT_FILE: Final = "config.toml"
DEFAULT_DATABASE: Final = Path("data", "agent.db")
"""Where an agent without a configuration keeps its database."""

SECTIONS: Final = frozenset(
    [
        *("agent", "approvals", "artifacts", "backup", "budget", "channels", "database", "disk"),
        *("engine", "executors", "http", "llm", "log", "mail", "mcp", "models", "notify", "prune"),
        *("secrets", "server", "shell", "steps", "telemetry", "workflows"),
    ]
)
"""The sections of a configuration: they distinguish ours from other files. A test compares them with
the settings, which take long to load."""

How = Literal["--config", "AGENT_CONFIG", "here", "above", "user", "none"]

_HEADING: Final = r"^[ \t]*\[\[?\s*[\"']?([\w-]+)"
_DOTTED_KEY: Final = r"^[ \t]*([\w-]+)\s*[.=]"
_CONTENT: Final = r"^[ \t]*[^#\s]"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` says all that is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Place:
    """The file of the configuration, and the directory that its relative paths start from."""

    base: Path
    file: Path | None
    """None: the defaults hold."""
    how: How
    passed_over: Path | None = None
    """A configuration further up, if a database without one was nearer."""

    def describe(self) -> str:
        """Say in one line which configuration is used, and why."""
        if self.file is None:
            where = f"none, the defaults hold for {self.base}"
            return where if self.how == "none" else f"{where}, which has a database"
        reasons = {
            "here": "in the current directory",
            "above": "above the current directory",
            "user": "your own",
        }
        return f"{self.file} ({reasons.get(self.how, f'named by {self.how}')})"


def find(
    named: str | Path | None, environment: Mapping[str, str], start: Path | None = None
) -> Place:
    """Find the configuration for a command that runs in `start`, the current directory.

    Raises `ConfigError` for a named file that is missing, and for a file above that another user owns.
    """
    if named or environment.get("AGENT_CONFIG"):
        file = Path(named or environment["AGENT_CONFIG"]).absolute()
        if not file.exists():
            raise ConfigError([f"{file}: there is no such configuration file"])
        return Place(file.parent, file, "--config" if named else "AGENT_CONFIG")
    here = Path.cwd() if start is None else start
    found = _find_upwards(here, environment)
    if found is not None:
        return found
    users_own = user_file(environment)
    if users_own is not None and users_own.exists():
        return Place(users_own.parent, users_own, "user")
    return Place(here, None, "none")


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Return where this user's own configuration is or would be; None without a home directory."""
    if environment.get("XDG_CONFIG_HOME", "").startswith("/"):
        directory = Path(environment["XDG_CONFIG_HOME"])
    elif not environment.get("HOME"):
        return None
    elif sys.platform == "darwin":
        directory = Path(environment["HOME"], "Library", "Application Support")
    else:
        directory = Path(environment["HOME"], ".config")
    return directory / "agent" / DEFAULT_FILE


def _find_upwards(here: Path, environment: Mapping[str, str]) -> Place | None:
    nearest: Place | None = None
    for directory in (here, *here.parents):
        how: How = "here" if directory == here else "above"
        file = directory / DEFAULT_FILE
        if file.is_file() and (how == "here" or _is_ours(file)):
            if nearest is not None:
                return Place(nearest.base, None, nearest.how, passed_over=file)
            if how == "above":
                _check_owner(file, here, environment)
            return Place(directory, file, how)
        if nearest is None and (directory / DEFAULT_DATABASE).is_file():
            if how == "above":
                _check_owner(directory / DEFAULT_DATABASE, here, environment)
            nearest = Place(directory, None, how)
    return nearest


def _is_ours(file: Path) -> bool:
    """Whether a file has a section of ours, or nothing at all."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # It may be ours: to go on would use another database in silence.
        return True
    top_level = text.partition("[")[0]
    names = {
        *re.findall(_HEADING, text, re.MULTILINE),
        *re.findall(_DOTTED_KEY, top_level, re.MULTILINE),
    }
    return not re.search(_CONTENT, text, re.MULTILINE) or not names.isdisjoint(SECTIONS)


def _check_owner(path: Path, here: Path, environment: Mapping[str, str]) -> None:
    """Refuse a file above the current directory that a user owns who is not trusted."""
    owner = path.stat().st_uid
    names = environment.get("AGENT_AGENT__TRUSTED_USERS", "").split(",")
    try:
        trust = trust_in([name.strip() for name in names if name.strip()], [])
    except ValueError as error:
        raise ConfigError([f"AGENT_AGENT__TRUSTED_USERS: {error}"]) from None
    # In containers a mounted directory often belongs to another user as a whole.
    is_roots_guest = os.geteuid() == ROOT and owner == here.stat().st_uid
    if not (trust.covers_user(owner) or is_roots_guest):
        raise ConfigError(
            [
                f"{path} belongs to user {user_name(owner)}, and an agent found above the current"
                " directory must be your own: name the file with --config, or the user in"
                " AGENT_AGENT__TRUSTED_USERS, if you trust it"
            ]
        )
