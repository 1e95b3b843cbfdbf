"""The file that describes a running agent: its process, version, address and settings.

Commands read it to report on the agent and its settings. The lock decides whether
an agent runs; this file only describes it. Settings are kept as digests: they may contain secrets.
"""

import contextlib
import hashlib
import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from agent import __version__
from agent.config.keys import leaves
from agent.config.loader import Configuration, read
from agent.config.locations import INSTANCE_FILE
from agent.config.settings import Settings
from agent.core.logs.logging import redact_text
from agent.steps.process import processes

_PRIVATE: Final = 0o600
_PROGRAM: Final = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Instance:
    """One running agent."""

    process_id: int
    process_started: str
    """Tells it from a later process with the same id."""
    host: str
    version: str
    started_at: str
    configuration: str | None
    """The path of its file; None: the defaults hold."""
    database: str
    api: str | None
    salt: str
    settings: dict[str, str]
    """A digest of each value in force, by key."""
    overridden: list[str]
    """Keys that its environment or command line set, whatever the file says."""
    reloads: int = 0
    last_reload: dict[str, Any] = field(default_factory=dict)
    program: str = ""
    """The directory of the program that it runs, and a digest of the files there when it started."""
    program_digest: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether it runs on this machine."""
        is_here = self.host == socket.gethostname()
        return is_here and processes.is_running(self.process_id, self.process_started)

    @property
    def has_old_program(self) -> bool:
        """Whether its program was replaced since it started: it runs, and may yet import, another one."""
        return bool(self.program) and self.program_digest != _digest_of_files(Path(self.program))

    def outdated_keys(self, configuration: Configuration) -> list[str]:
        """Return the keys whose value in the file is not the one in force."""
        # Without the environment of this process: the agent has its own.
        in_file = read(configuration.place, {}, text=configuration.text).settings
        digests = _digests(in_file, self.salt)
        overridden = set(self.overridden)
        return [
            key
            for key in {**self.settings, **digests}
            if key not in overridden and self.settings.get(key) != digests.get(key)
        ]


class InstanceFile:
    """Writes the file of one running agent."""

    def __init__(self, home: Path, configuration: Configuration, started_at: str) -> None:
        self._path = home / INSTANCE_FILE
        settings = configuration.settings
        salt = secrets.token_hex(8)
        self._instance = Instance(
            process_id=os.getpid(),
            process_started=processes.start_time(os.getpid()) or "",
            host=socket.gethostname(),
            version=__version__,
            started_at=started_at,
            configuration=None if settings.file is None else str(settings.file),
            database=redact_text(settings.database_url),
            api=None,
            salt=salt,
            settings=_digests(settings, salt),
            overridden=sorted({*configuration.variables, *configuration.options}),
            program=str(_PROGRAM),
            program_digest=_digest_of_files(_PROGRAM),
        )

    def write(self, api: str | None) -> None:
        """Write the file when the agent has started."""
        self._write(replace(self._instance, api=api))

    def record_reload(self, settings: Settings, result: dict[str, Any]) -> None:
        """Record the settings in force after a reload, and its result."""
        self._write(
            replace(
                self._instance,
                settings=_digests(settings, self._instance.salt),
                reloads=self._instance.reloads + 1,
                last_reload=result,
            )
        )

    def remove(self) -> None:
        """Remove the file, unless another agent has written it since."""
        description = _read(self._path)
        if description is not None and description.process_id == self._instance.process_id:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _write(self, instance: Instance) -> None:
        """Replace the file. An agent that cannot write it, on a full disk for example, still works."""
        self._instance = instance
        unfinished = self._path.with_suffix(".unfinished")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(instance), file, indent=2)
            unfinished.replace(self._path)
        except OSError as error:
            # Commands that only read the file need not load this.
            import structlog

            log = structlog.get_logger(__name__)
            log.warning("instance_file.not_written", path=str(self._path), error=str(error))


def running_instance(home: Path) -> Instance | None:
    """Return the agent that runs with this home directory on this machine."""
    description = _read(home / INSTANCE_FILE)
    return description if description is not None and description.is_alive else None


def _read(path: Path) -> Instance | None:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        # A newer version may have written more.
        known = {each.name for each in fields(Instance)}
        return Instance(**{name: written[name] for name in written if name in known})
    except (OSError, ValueError, TypeError):
        # Missing, or of another version.
        return None


def _digest_of_files(program: Path) -> str:
    """Return a digest of the names, sizes and times of a program's files, which is quick to compute."""
    found = []
    for directory, subdirectories, names in os.walk(program):
        if "__pycache__" in subdirectories:
            subdirectories.remove("__pycache__")
        for name in names:
            with contextlib.suppress(OSError):
                path = Path(directory, name)
                status = path.stat()
                found.append((str(path), status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16]


def _digests(settings: Settings, salt: str) -> dict[str, str]:
    return {key: _digest(value, salt) for key, value in leaves(settings)}


def _digest(value: Any, salt: str) -> str:
    text = salt + json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
