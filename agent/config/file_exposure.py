"""The files that give power over the agent, and whether users who are not trusted can change them.

The configuration and the workflows are code; the home directory holds the tokens and the database,
whose tasks are run. A user who can change one of these acts as the agent's user. So a process that is
about to run tasks first closes its home directory to others. It refuses to start if something else is
exposed: a file that others could write may no longer have its owner's content.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.core.files import database_file
from agent.core.files.file_trust import (
    ROOT,
    Trust,
    Weakness,
    can_be_read_by_others,
    is_special,
    trust_in,
    user_name,
    weaknesses,
)
from agent.core.quick_classes.quick_dataclasses import replace

if TYPE_CHECKING:
    from agent.config.settings import Settings

_CODE_SUFFIXES: Final = (".yaml", ".yml", ".json", ".py", ".pyc")
_MAX_FILES: Final = 20_000
"""Files checked below the workflow directory: a huge directory must not delay the start."""
_SHOWN: Final = 10


class ExposedError(Exception):
    """Users who are not trusted can change files that the agent acts on."""

    def __init__(self, weak_files: list[Weakness]) -> None:
        lines = [
            f"{weakness.path} {weakness.problem}: {weakness.remedy}"
            for weakness in weak_files[:_SHOWN]
        ]
        if len(weak_files) > _SHOWN:
            lines.append(f"and {len(weak_files) - _SHOWN} more")
        super().__init__(
            "users who are not trusted can change files that the agent acts on:\n  "
            + "\n  ".join(lines)
            + "\nCheck what these files say before you change their owner or mode. If the access is"
            " intended, name users or groups in trusted_users or trusted_groups of [agent]."
        )


def close_to_others(settings: "Settings") -> list[str]:
    """Close the home directory to others and refuse files that stay exposed; return messages about it.

    Raises `ExposedError`, and `ValueError` for a trusted user or group that does not exist.
    """
    trust = trust_of(settings)
    messages = [*remarks(settings)]
    weak_files = [
        weakness for weakness in exposed(settings, trust) if not _is_mended(weakness, settings)
    ]
    if weak_files:
        raise ExposedError(weak_files)
    if not trust.is_for_everyone:
        messages += _mend(settings, trust)
    return messages


def trust_of(settings: "Settings") -> Trust:
    """Return the trust that the configuration sets.

    Root also trusts the owner of the configuration's directory: in containers a mounted directory
    often belongs to another user as a whole.
    """
    trust = trust_in(settings.agent.trusted_users, settings.agent.trusted_groups)
    owner = _other_owner(settings)
    if owner is not None:
        trust = replace(
            trust,
            users=trust.users | {owner.st_uid},
            groups=trust.groups | {owner.st_gid},
        )
    return trust


def remarks(settings: "Settings") -> Iterator[str]:
    """Yield warnings about files that are accepted."""
    owner = _other_owner(settings)
    if owner is not None:
        yield (
            f"the agent runs as root, and {settings.base} belongs to user"
            f" {user_name(owner.st_uid)}, who can therefore act as root"
        )


def exposed(settings: "Settings", trust: Trust) -> list[Weakness]:
    """Return the files that untrusted users can change and the agent acts on."""
    weak: dict[Path, Weakness] = {}
    if settings.file is not None:
        # A file that others can write must not declare them trusted.
        first = trust_in(*settings.trusted_by_environment)
        owner = _other_owner(settings)
        if owner is not None:
            first = replace(first, users=first.users | {owner.st_uid})
            first = replace(first, groups=first.groups | {owner.st_gid})
        weak |= {item.path: item for item in weaknesses(settings.file, first)}
    for path in _power_files(settings):
        weak |= {item.path: item for item in weaknesses(path, trust)}
    for path in _code(settings.workflow_directory):
        weak |= {item.path: item for item in weaknesses(path, trust) if not _is_no_code(item, path)}
    for path in _token_files(settings):
        if path in weak:
            # To take it over would let in those whose tokens are in it.
            remedy = f"rm {path}, which revokes its tokens"
            weak[path] = replace(weak[path], remedy=remedy)
    return list(weak.values())


def readable(settings: "Settings", trust: Trust) -> list[Path]:
    """Return the files of the home directory that only the agent should read, and others can."""
    paths = []
    for path in secret_files(settings):
        try:
            status = path.stat()
        except OSError:
            continue
        if can_be_read_by_others(status, trust):
            paths.append(path)
    return paths


def _other_owner(settings: "Settings") -> os.stat_result | None:
    """Return the owner of the configuration's directory, where root runs the agent for another user."""
    if os.geteuid() != ROOT:
        return None
    try:
        status = settings.base.stat()
    except OSError:
        return None
    return None if status.st_uid == ROOT else status


def _is_mended(weakness: Weakness, settings: "Settings") -> bool:
    """Whether the start itself mends this: the mode of a home directory of the agent's own user."""
    try:
        is_home = weakness.path.samefile(settings.home)
        return is_home and not weakness.is_owner and weakness.path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _mend(settings: "Settings", trust: Trust) -> Iterator[str]:
    home = settings.home
    try:
        status = home.stat()
    except OSError:
        return
    if status.st_uid == os.geteuid():
        mode = stat.S_IMODE(status.st_mode)
        # A home directory that people share with their own files keeps their right to read.
        is_shared = settings.base.absolute().is_relative_to(home.absolute())
        taken = stat.S_IWGRP | stat.S_IWOTH if is_shared else stat.S_IRWXG | stat.S_IRWXO
        if status.st_gid in trust.groups:
            taken &= ~stat.S_IRWXG
        wanted = mode & ~taken
        if mode != wanted:
            home.chmod(wanted)
            yield f"closed {home} to other users: its mode was {mode:o} and is {wanted:o}"
    for path in readable(settings, trust):
        # SQLite removes its log when the last connection of another process closes.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid == os.geteuid():
                path.chmod(stat.S_IRUSR | stat.S_IWUSR)
                yield f"closed {path} to other users, who could read it"


def _power_files(settings: "Settings") -> Iterator[Path]:
    yield settings.home
    yield settings.environment_file
    yield from secret_files(settings)


def _token_files(settings: "Settings") -> tuple[Path, ...]:
    home = settings.home.absolute()
    return home / "token", home / "tokens.json", home / "sessions.json"


def secret_files(settings: "Settings") -> Iterator[Path]:
    """Yield the files that hold tokens or the database, whether they exist or not."""
    yield from _token_files(settings)
    if settings.database_url.startswith("sqlite:///"):
        database = Path(settings.database_url.removeprefix("sqlite:///"))
        yield database
        for suffix in ("-wal", "-shm", "-journal"):
            yield database.with_name(database.name + suffix)
        # Files that a restore has replaced; a running agent excludes a restore.
        yield from database.parent.glob(f"{database.name}.replaced-*")


def _is_no_code(weakness: Weakness, path: Path) -> bool:
    """Whether a mode concerns a device, a FIFO or a socket, from which no workflow is read.

    An untrusted owner still counts: in a sticky directory the owner can put a file in its place.
    """
    if weakness.is_owner:
        return False
    try:
        return is_special(path.stat()) and weakness.path.samefile(path)
    except OSError:
        return False


def _code(directory: Path) -> Iterator[Path]:
    """Find the workflow files and the modules beside them, compiled ones included.

    Python imports from linked directories too, and runs what it finds in `__pycache__`.
    """
    yield directory
    count = 0
    walked: set[database_file.Identity] = set()
    for place, directories, names in os.walk(directory, followlinks=True):
        identity = database_file.identity_of(place)
        if identity in walked:
            # A link leads back to it, or a second one to the same directory.
            directories.clear()
            continue
        walked.add(identity)
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in (*directories, *(name for name in names if name.endswith(_CODE_SUFFIXES))):
            count += 1
            if count > _MAX_FILES:
                return
            yield Path(place, name)
