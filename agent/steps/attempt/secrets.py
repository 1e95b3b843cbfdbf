"""Secrets by reference: `env:NAME` and `file:PATH`, resolved at execution and never stored.

Only references in the definition itself count. The result of a template is data, and data must not
be able to name a secret.

A secret that was read by reference is redacted in everything that this process writes. The references
of the configuration and of workflows are *watched*: their values are redacted before any step reads
them, since a step may get a secret by another way.
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
"""A larger file, and one that is not a regular file, is read only by the step that names it."""

ValuePath = tuple[str | int, ...]

# A header is often a word and a secret: `Bearer env:TOKEN`. A recipient is `apprise:env:NAME`.
# `file://…` is a URL, not a reference.
_reference = re.compile(
    r"^(?:(?P<word>(?i:Bearer|Basic|Token|ApiKey)) |apprise:)?"
    r"(?:env:(?P<env>[A-Z_][A-Z0-9_]*)|file:(?P<file>(?!//)\S.*))$"
)


def references(value: Json, at: ValuePath = ()) -> Iterator[ValuePath]:
    """Yield the paths in a definition that hold a reference."""
    if isinstance(value, str):
        if _reference.match(value):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from references(member, (*at, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from references(member, (*at, index))


def referenced_files(value: Json) -> set[str]:
    """Return the files that the references in a definition name."""
    if isinstance(value, str):
        match = _reference.match(value)
        return {match["file"]} if match and match["file"] else set()
    if isinstance(value, dict):
        return set().union(*map(referenced_files, value.values()))
    if isinstance(value, list):
        return set().union(*map(referenced_files, value))
    return set()


class Secrets:
    """Reads the secrets of an attempt, and redacts them in what it writes."""

    @property
    def longest(self) -> int:
        """The length of the longest form of a secret, so that no text is cut inside of one."""
        return everywhere.longest

    def resolve(self, value: Json, paths: frozenset[ValuePath]) -> Json:
        """Return a value with the references at these paths replaced by their secrets."""
        if not paths:
            return value
        return self._resolved(value, paths, ())

    def hide(self, value: Json, paths: frozenset[ValuePath]) -> None:
        """Redact the secrets of the references at these paths from now on; missing ones are skipped."""
        for path in paths:
            with suppress(DefiniteFailure):
                self.resolve(value, frozenset({path}))

    def _resolved(self, value: Json, paths: frozenset[ValuePath], at: ValuePath) -> Json:
        if isinstance(value, str):
            return self._read(value) if at in paths else value
        if isinstance(value, dict):
            return {k: self._resolved(v, paths, (*at, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self._resolved(v, paths, (*at, n)) for n, v in enumerate(value)]
        return value

    def _read(self, reference: str) -> str:
        match = _reference.match(reference)
        assert match is not None
        if match["env"] is not None:
            secret = os.environ.get(match["env"])
            if secret is None:
                raise _missing(f"the environment variable {match['env']} is not set")
        else:
            try:
                secret = path_of(match["file"]).read_text(encoding="utf-8").strip("\r\n")
            except (OSError, ValueError) as problem:
                raise _missing(f"the file {match['file']} cannot be read: {problem}") from None
        everywhere.hide(secret, reference)
        return f"{match['word']} {secret}" if match["word"] else secret

    def redact(self, text: str) -> str:
        """Return a text without the secrets."""
        return everywhere.redact(text)

    def redact_value(self, value: Json) -> Json:
        """Return a value without the secrets, in its texts and in its keys."""
        return everywhere.redact_value(value)


class SecretWatcher:
    """Redacts the secrets of watched references, also after they are replaced."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        """Each reference with its state at the last check: a value, or the state of a file."""
        self._checked_at = float("-inf")

    @property
    def references(self) -> list[str]:
        """The watched references."""
        return list(self._seen)

    def add(self, value: Json) -> None:
        """Watch all references in a part of a configuration or of a definition."""
        for path in references(value):
            reference = value_at(value, path)
            if reference not in self._seen:
                self._seen[reference] = None
                self._check(reference)

    def refresh(self) -> None:
        """Check for replaced secrets, at most once a second."""
        now = time.monotonic()
        if now - self._checked_at >= _REFRESH_SECONDS:
            self._checked_at = now
            for reference in self.references:
                self._check(reference)

    def _check(self, reference: str) -> None:
        state = _state(reference)
        if state is not None and state != self._seen[reference]:
            self._seen[reference] = state
            Secrets().hide(reference, frozenset({()}))


secret_watcher: Final = SecretWatcher()
"""The references of this process's configuration and of its workflows."""


def value_at(value: Json, path: ValuePath) -> Json:
    """Return the member of a value at a path."""
    for key in path:
        value = value[key]
    return value


def _state(reference: str) -> Any:
    """Return a value that changes with a secret, or None if there is nothing to read."""
    match = _reference.match(reference)
    assert match is not None
    if match["env"] is not None:
        return os.environ.get(match["env"])
    try:
        status = path_of(match["file"]).stat()
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
