"""Settings for commands that need few of them, without loading pydantic.

To check a whole configuration takes longer than most commands, and so does reading TOML. So the hash of a
file that was found to be right is kept in the user's cache directory, with the few values that commands
need. As long as the file has that hash, these values hold. Every other setting, and every other file, is
read and checked as a whole.
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from agent.config.locations import Locations
from agent.core.files.user_cache import UserCache

if TYPE_CHECKING:
    from agent.config.settings import Settings

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "agent": {"home": "data", "trusted_users": [], "trusted_groups": []},
    "artifacts": {"url": ""},
    "database": {"url": ""},
    "engine": {"lease_seconds": 60.0, "steps_per_task": 20_000},
    "workflows": {"directory": "workflows"},
}
"""The settings that are taken as they stand, with the models' defaults; a test compares them."""

_PREFIX: Final = "AGENT_"
_URL: Final = "AGENT_DATABASE__URL"
_ADDRESSES: Final = ("sqlite:////", "postgresql://", "postgres://")


def settings_at(
    base: Path,
    file: Path | None,
    environment: Mapping[str, str],
    version: str,
    load: Callable[[], "Settings"],
) -> "Settings":
    """Return the settings of a configuration; `load` reads and checks all of it.

    `version` is that of the program: another one may find other things wrong.
    """
    set_here = {name for name in environment if name.startswith(_PREFIX) and "__" in name}
    url = environment.get(_URL, "")
    if set_here - {_URL} or (url and not url.startswith(_ADDRESSES)):
        return load()
    document: dict[str, Any] = {}
    if file is not None:
        try:
            text = file.read_bytes()
        except OSError:
            # The slow way reports the problem.
            return load()
        # By its path too, so that configurations with the same text have a memory each.
        memory = UserCache("config", environment, f"{version}\0{file.absolute()}\0".encode() + text)
        remembered = memory.read()
        if remembered is None:
            checked = None if _is_plainly_right(text) else load()
            values = _values_in(text)
            # Of a password there is no second copy: such a file is read each time.
            memory.write(
                "" if "@" in values.get("database", {}).get("url", "") else json.dumps(values)
            )
            if checked is not None:
                return checked
            document = values
        else:
            document = json.loads(remembered) if remembered else _values_in(text)
    if environment.get("AGENT_HOME"):
        home = base / environment["AGENT_HOME"]
        document.setdefault("agent", {})["home"] = str(home.absolute())
    if url:
        document.setdefault("database", {})["url"] = url
    return cast("Settings", QuickSettings(base, file, document, load))


class QuickSettings(Locations):
    """A few settings as they stand in the file; the whole configuration where another is read."""

    trusted_by_environment: tuple[list[str], list[str]] = ([], [])

    def __init__(
        self,
        base: Path,
        file: Path | None,
        document: dict[str, Any],
        load: Callable[[], "Settings"],
    ) -> None:
        self.base = base
        self.file = file
        self._load = load
        for name in DEFAULTS:
            setattr(self, name, _Section(self, name, document.get(name, {})))

    @cached_property
    def whole(self) -> "Settings":
        """The whole configuration."""
        return self._load()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


class _Section:
    def __init__(self, settings: QuickSettings, name: str, values: dict[str, Any]) -> None:
        self._settings = settings
        self._name = name
        self.__dict__.update(DEFAULTS[name])
        self.__dict__.update({key: values[key] for key in DEFAULTS[name].keys() & values.keys()})

    def __getattr__(self, key: str) -> Any:
        return getattr(getattr(self._settings.whole, self._name), key)


def _is_plainly_right(text: bytes) -> bool:
    """Whether a file is right as far as that can be found out without pydantic, which says what is wrong."""
    import tomllib

    from agent.config.settings import PLACES, Settings
    from agent.core.quick_classes.quick_checks import NotPlainError, accept

    try:
        document = tomllib.loads(text.decode())
        accept(Settings, document)
    except (ValueError, RecursionError, NotPlainError):
        return False
    return not PLACES & document.keys()


def _values_in(text: bytes) -> dict[str, dict[str, Any]]:
    """Return the values that commands need, of a file that was found to be right."""
    import tomllib

    document = tomllib.loads(text.decode())
    return {
        section: {key: values[key] for key in DEFAULTS[section].keys() & values.keys()}
        for section, values in document.items()
        if section in DEFAULTS
    }
