"""Sets one key in the file of the configuration; comments and everything else stay as they are."""

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.config.discovery import ConfigError, Place
from agent.config.keys import Document, field_at, from_text, value_at
from agent.config.loader import read, unknown_key


@dataclass(frozen=True, slots=True)
class Edit:
    """One key of the file that was set."""

    key: str
    old: Any
    """None: the key was not in the file."""
    new: Any


def set_keys(place: Place, pairs: list[tuple[str, str]]) -> list[Edit]:
    """Set keys to the values that texts stand for; the file is replaced in one step.

    Raises `ConfigError` for an unknown key, and for values with which the file could not be used.
    """
    import tomlkit

    if place.file is None:
        raise ConfigError(["there is no configuration to change: `agent init` writes one"])
    unknown = [f"{key}: {unknown_key(key)}" for key, _ in pairs if field_at(key.split(".")) is None]
    if unknown:
        raise ConfigError(unknown)
    # Problems that the file already has are reported first.
    before = read(place, {})
    document = tomlkit.parse(before.text)
    edits = []
    for key, text in pairs:
        path = key.split(".")
        field = field_at(path)
        assert field is not None
        edits.append(Edit(key, value_at(before.document, path), from_text(text, field.annotation)))
        _set(document, path, edits[-1].new)
    after = tomlkit.dumps(document)
    read(place, {}, text=after)
    _replace(place.file, after)
    return edits


def _set(document: Document, path: list[str], value: Any) -> None:
    import tomlkit

    inner: Any = document
    for position, name in enumerate(path[:-1]):
        if name not in inner:
            # `[models.claude]` needs no `[models]` before it.
            is_last = position == len(path) - 2
            inner[name] = tomlkit.table(is_super_table=not is_last)
        inner = inner[name]
    old = inner.get(path[-1])
    inner[path[-1]] = value
    if old is not None and hasattr(old, "trivia"):
        # The comment beside the value is about the key.
        new = inner.item(path[-1])
        new.trivia.comment_ws, new.trivia.comment = old.trivia.comment_ws, old.trivia.comment


def _replace(file: Path, text: str) -> None:
    """Write a file in one step, with the mode that it had; a symbolic link stays one."""
    real = Path(os.path.realpath(file))
    number, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    beside = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as written:
            written.write(text)
            written.flush()
            os.fsync(written.fileno())
        status = real.stat()
        beside.chmod(stat.S_IMODE(status.st_mode))
        with suppress(PermissionError):
            os.chown(beside, status.st_uid, status.st_gid)
        beside.replace(real)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
