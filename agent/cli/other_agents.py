"""The agents of this user, for the message that none runs here: which run elsewhere, or was used last.

`agent up` keeps where it ran in the user's cache. An agent in another directory is reached by its
configuration, or from its directory where it has none.
"""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.cli import invocation
from agent.config.locations import INSTANCE_FILE
from agent.core.files.user_cache import UserCache

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.db.database import Database

_MOST: Final = 10
_SETTING: Final = re.compile("AGENT_[A-Z]+__")


def remember(settings: "Settings") -> None:
    """Keep where an agent runs, the newest first."""
    file = None if settings.file is None else str(settings.file.absolute())
    here = [str(settings.home.absolute()), str(settings.base.absolute()), file]
    others = [place for place in _known() if place[0] != here[0]]
    _cache().write(json.dumps([here, *others][:_MOST]))


def no_agent(settings: "Settings", does: str = "") -> str:
    """Return that no agent runs here, what `agent up` does then, and which agents there are elsewhere."""
    program = invocation.program()
    if is_agents(settings):
        advice = f": `{program} up` {does}" if does else ""
        return f"no agent is running{advice}{elsewhere(settings, has_last=False)}"
    return (
        f"no agent is running, and {settings.base} has none: `{program} init` creates one"
        f"{elsewhere(settings, has_last=True)}"
    )


def require_agent(settings: "Settings") -> None:
    """Refuse a directory in which no agent was set up."""
    from agent.cli.errors import CommandError, Exit

    if not is_agents(settings):
        raise CommandError(
            f"{none_in(settings)}; `{invocation.program()} init` creates one here", Exit.NO_DATABASE
        )


def none_in(settings: "Settings") -> str:
    """Return that no agent was set up in this directory, and which there are elsewhere."""
    return f"there is no agent in {settings.base} or above{elsewhere(settings, has_last=True)}"


def open_database(settings: "Settings") -> "Database":
    """Open the local database; where there is none, the error names the agents elsewhere."""
    from agent import bootstrap
    from agent.cli.errors import CommandError, Exit

    try:
        return bootstrap.open_database(settings)
    except bootstrap.MissingDatabaseError as error:
        raise CommandError(
            f"{error}{elsewhere(settings, has_last=True)}", Exit.NO_DATABASE
        ) from None


def is_agents(settings: "Settings") -> bool:
    """Whether an agent was set up here: by a configuration, its own settings, or a database."""
    from agent import bootstrap

    is_set = any(name == "AGENT_HOME" or _SETTING.match(name) for name in os.environ)
    has_settings = is_set or bool(invocation.overrides)
    return settings.file is not None or has_settings or bootstrap.has_database(settings)


def elsewhere(settings: "Settings", *, has_last: bool) -> str:
    """Return the agents that run elsewhere, or the one that was used last, as the rest of a sentence."""
    others = [place for place in _known() if place[0] != str(settings.home.absolute())]
    running = [place for place in others if _is_running(Path(place[0]))]
    text = "".join(f"; one runs in {base}: {_way(base, file)}" for _, base, file in running)
    if not running and has_last:
        for _, base, file in others[:1]:
            text += f"; the one used last is in {base}: {_way(base, file)}"
    return text


def _is_running(home: Path) -> bool:
    if not (home / INSTANCE_FILE).exists():
        return False
    from agent.daemon.instance_file import running_instance

    return running_instance(home) is not None


def _way(base: str, file: str | None) -> str:
    program = invocation.program()
    return f"`cd {base}`" if file is None else f"`{program} --config {file} status`"


def _known() -> list[tuple[str, str, str | None]]:
    """Return the home, the directory and the configuration of agents that are still there."""
    try:
        places = [tuple(place) for place in json.loads(_cache().read() or "[]")]
    except ValueError:
        return []
    return [place for place in places if len(place) == 3 and Path(place[0]).is_dir()]


def _cache() -> UserCache:
    return UserCache("agents", os.environ, b"")
