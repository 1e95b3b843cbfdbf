"""Secrets by reference: `env:NAME` and `file:PATH`, resolved at execution, never written down.

Only references that stand in the definition itself count. One that came out of a template is data,
and data must not be able to name a secret.

Whatever was read by reference is hidden in everything that this process writes down. The references
of the configuration and of workflows are *watched*: what they name is hidden before any step reads
it, since a step can come by a secret that was not given to it.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from agent.core.redaction import everywhere
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

_REFRESH_SECONDS: Final = 1.0
_MAX_WATCHED_BYTES: Final = 1_048_576
"""A larger file, and one that is no plain file, is read only by the step that it is given to."""

Place = tuple[str | int, ...]

# A header is often a word and a secret: `Bearer env:TOKEN`. An address `file://…` is none.
_reference = re.compile(
    r"^(?:(?P<word>(?i:Bearer|Basic|Token|ApiKey)) )?"
    r"(?:env:(?P<env>[A-Z_][A-Z0-9_]*)|file:(?P<file>(?!//)\S.*))$"
)


def references(value: Json, at: Place = ()) -> Iterator[Place]:
    """Find the places in a definition that hold a reference."""
    if isinstance(value, str):
        if _reference.match(value):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from references(member, (*at, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from references(member, (*at, index))


def files_named(value: Json) -> set[str]:
    """Return the files that references in a definition name."""
    if isinstance(value, str):
        found = _reference.match(value)
        return {found["file"]} if found and found["file"] else set()
    if isinstance(value, dict):
        return set().union(*map(files_named, value.values()))
    if isinstance(value, list):
        return set().union(*map(files_named, value))
    return set()


class Secrets:
    """How an attempt reads secrets, and keeps them out of what it writes."""

    @property
    def longest(self) -> int:
        """The length of the longest form of a secret: text is cut nowhere inside one."""
        return everywhere.longest

    def resolve(self, value: Json, places: frozenset[Place]) -> Json:
        """Return a value with the references at these places replaced by what they name."""
        if not places:
            return value
        return self._resolved(value, places, ())

    def hide(self, value: Json, places: frozenset[Place]) -> None:
        """Show nothing of what the references at these places name, as far as it is there now."""
        for place in places:
            with suppress(DefiniteFailure):
                self.resolve(value, frozenset({place}))

    def _resolved(self, value: Json, places: frozenset[Place], at: Place) -> Json:
        if isinstance(value, str):
            return self._read(value) if at in places else value
        if isinstance(value, dict):
            return {k: self._resolved(v, places, (*at, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self._resolved(v, places, (*at, n)) for n, v in enumerate(value)]
        return value

    def _read(self, reference: str) -> str:
        found = _reference.match(reference)
        assert found is not None
        if found["env"] is not None:
            secret = os.environ.get(found["env"])
            if secret is None:
                raise _missing(f"the environment variable {found['env']} is not set")
        else:
            try:
                secret = path_of(found["file"]).read_text(encoding="utf-8").strip("\r\n")
            except (OSError, ValueError) as problem:
                raise _missing(f"the file {found['file']} cannot be read: {problem}") from None
        everywhere.hide(secret, reference)
        return f"{found['word']} {secret}" if found["word"] else secret

    def redact(self, text: str) -> str:
        """Return a text without the secrets."""
        return everywhere.redact(text)

    def redact_value(self, value: Json) -> Json:
        """Return a value without the secrets, in its texts and its keys."""
        return everywhere.redact_value(value)


class SecretWatcher:
    """Keeps hidden what references name, also when it is replaced."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        """Each reference with what it named at the last look: a value, or the state of a file."""
        self._looked_at = float("-inf")

    @property
    def references(self) -> list[str]:
        """What is watched."""
        return list(self._seen)

    def add(self, value: Json) -> None:
        """SecretWatcher all references in a part of a configuration or of a definition."""
        for place in references(value):
            reference = at(value, place)
            if reference not in self._seen:
                self._seen[reference] = None
                self._look(reference)

    def refresh(self) -> None:
        """Look for what was replaced, at most once a second."""
        now = time.monotonic()
        if now - self._looked_at >= _REFRESH_SECONDS:
            self._looked_at = now
            for reference in self.references:
                self._look(reference)

    def _look(self, reference: str) -> None:
        state = _state(reference)
        if state is not None and state != self._seen[reference]:
            self._seen[reference] = state
            Secrets().hide(reference, frozenset({()}))


secret_watcher: Final = SecretWatcher()
"""The references of this process's configuration and of the workflows that it knows."""


def at(value: Json, place: Place) -> Json:
    """Return what stands at a place."""
    for key in place:
        value = value[key]
    return value


def _state(reference: str) -> Any:
    """Return what changes when a secret does, or None where there is nothing to read."""
    found = _reference.match(reference)
    assert found is not None
    if found["env"] is not None:
        return os.environ.get(found["env"])
    try:
        status = path_of(found["file"]).stat()
    except (OSError, ValueError):
        return None
    # Opening a pipe would block, and consume data meant for another reader.
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_WATCHED_BYTES:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def path_of(text: str) -> Path:
    """Return the file that a reference names; raise `OSError` for the home of an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError as problem:
        raise FileNotFoundError(errno.ENOENT, str(problem).rstrip("."), text) from None


def _missing(problem: str) -> DefiniteFailure:
    return DefiniteFailure(problem, code="secret_missing", kind="input", may_retry=False)
