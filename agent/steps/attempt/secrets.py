"""Secrets by reference, resolved at execution and never stored.

The forms are `env:NAME`, `file:PATH`, `keyring:SERVICE/NAME` and `exec:NAME`
(`agent.core.secret_reference`). Only references in the definition itself count. The result of a
template is data, and data must not be able to name a secret.

A secret that was read by reference is redacted in everything that this process writes. The references
of the configuration and of workflows are *watched*: their values are redacted before any step reads
them, since a step may get a secret by another way.

`keyring:` and `exec:` may take long to read. An event loop reads them with `prefetch` or `read`; what
they found serves all later calls of `resolve` on the same object.
"""

import errno
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from agent.core.redaction import everywhere
from agent.core.secret_reference import Reference, ValuePath, parse, references, value_at
from agent.steps.attempt.secret_sources import SecretReadError, sources
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

__all__ = [
    "SecretWatcher",
    "Secrets",
    "ValuePath",
    "path_of",
    "referenced_files",
    "references",
    "secret_watcher",
    "value_at",
]

_REFRESH_SECONDS: Final = 1.0
_MAX_WATCHED_BYTES: Final = 1_048_576
"""A larger file, and one that is not a regular file, is read only by the step that names it."""


def referenced_files(value: Json) -> set[str]:
    """Return the files that the references in a definition name."""
    parsed = (parse(value_at(value, path)) for path in references(value))
    return {reference.name for reference in parsed if reference and reference.source == "file"}


class Secrets:
    """Reads the secrets of an attempt, and redacts them in its records."""

    def __init__(self) -> None:
        self._read_slowly: dict[str, str | SecretReadError] = {}
        """The results of `prefetch`, by reference: within an attempt a secret has one value."""

    @property
    def longest(self) -> int:
        """The length of the longest form of a secret, so that no text is cut inside of one."""
        return everywhere.longest

    async def read(self, value: Json, paths: frozenset[ValuePath]) -> Json:
        """Return a value with the references at these paths replaced, as an event loop may do it."""
        await self.prefetch(value, paths)
        return self.resolve(value, paths)

    async def prefetch(self, value: Json, paths: frozenset[ValuePath]) -> None:
        """Read the slow references: the later `resolve` then does not block, and raises their failures."""
        slow = {}
        for path in paths:
            reference = parse(value_at(value, path)) if _has(value, path) else None
            if reference is not None and reference.is_slow:
                slow[reference.text] = reference
        missing = [reference for text, reference in slow.items() if text not in self._read_slowly]
        if missing:
            import asyncio

            results = await asyncio.gather(*map(_read_in_thread, missing))
            for reference, result in zip(missing, results, strict=True):
                self._read_slowly[reference.text] = result

    def resolve(self, value: Json, paths: frozenset[ValuePath]) -> Json:
        """Return a value with the references at these paths replaced by their secrets.

        A reference that takes long, and was not prefetched, blocks.
        """
        if not paths:
            return value
        return self._resolved(value, paths, ())

    def hide(self, value: Json, paths: frozenset[ValuePath]) -> None:
        """Redact the secrets of the references at these paths from now on; missing ones are skipped.

        So are those that take long: the watcher has read them before the first attempt.
        """
        for path in paths:
            reference = parse(value_at(value, path)) if _has(value, path) else None
            if reference is not None and not reference.is_slow:
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

    def _read(self, text: str) -> str:
        reference = parse(text)
        assert reference is not None
        try:
            secret = self._value_of(reference)
        except SecretReadError as error:
            raise _missing(str(error)) from None
        everywhere.hide(secret, reference.text)
        return f"{reference.word} {secret}" if reference.word else secret

    def _value_of(self, reference: Reference) -> str:
        if reference.source == "env":
            secret = sources.environment_value(reference.name)
            if secret is None:
                raise SecretReadError(f"the environment variable {reference.name} is not set")
            return secret
        if reference.source == "file":
            try:
                return path_of(reference.name).read_text(encoding="utf-8").strip("\r\n")
            except (OSError, ValueError) as error:
                raise SecretReadError(
                    f"the file {reference.name} cannot be read: {error}"
                ) from None
        value = self._read_slowly.get(reference.text)
        if isinstance(value, SecretReadError):
            raise value
        return value if value is not None else sources.wait(reference.source, reference.name)

    def redact(self, text: str) -> str:
        """Return a text without the secrets."""
        return everywhere.redact(text)

    def redact_value(self, value: Json) -> Json:
        """Return a value without the secrets, in its texts and in its keys."""
        return everywhere.redact_value(value)


class SecretWatcher:
    """Redacts the secrets of watched references, also after they are replaced.

    One that takes long to read is read once, before the first attempt: a prompt must not appear again
    and again. A replaced value of it is redacted from its next use on.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        """Each reference with its state at the last check: a value, or the state of a file."""
        self._checked_at = float("-inf")
        self._unread: dict[str, Reference] = {}
        """Watched references that take long and have not been read yet."""

    @property
    def references(self) -> list[str]:
        """The watched references."""
        return list(self._seen)

    @property
    def has_unread(self) -> bool:
        """Whether `read_unread` has something to do."""
        return bool(self._unread)

    def add(self, value: Json) -> None:
        """Watch all references in a part of a configuration or of a definition."""
        for path in references(value):
            text = value_at(value, path)
            if text not in self._seen:
                self._seen[text] = None
                reference = parse(text)
                assert reference is not None
                if reference.is_slow:
                    self._unread[reference.text] = reference
                else:
                    self._check(text)

    def refresh(self) -> None:
        """Check for replaced secrets, at most once a second."""
        now = time.monotonic()
        if now - self._checked_at >= _REFRESH_SECONDS:
            self._checked_at = now
            for reference in self.references:
                self._check(reference)

    async def read_unread(self) -> None:
        """Read the slow references, once in the life of this process; no step may run before."""
        import asyncio

        unread = dict(self._unread)
        results = await asyncio.gather(*map(_read_in_thread, unread.values()))
        for text, result in zip(unread, results, strict=True):
            if self._unread.pop(text, None) is not None and isinstance(result, SecretReadError):
                _log_unreadable(text, result)

    def clear(self) -> None:
        """Watch nothing any more."""
        self._seen.clear()
        self._unread.clear()

    def _check(self, reference: str) -> None:
        state = _state(reference)
        if state is not None and state != self._seen[reference]:
            self._seen[reference] = state
            Secrets().hide(reference, frozenset({()}))


secret_watcher: Final = SecretWatcher()
"""The references of this process's configuration and of its workflows."""


async def _read_in_thread(reference: Reference) -> str | SecretReadError:
    """Return a secret that takes long, or why it cannot be read; it is redacted from now on."""
    import asyncio

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def wake(_: object) -> None:
        # The loop may be closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.cancel)

    future = sources.slow.start(reference.source, reference.name)
    future.add_done_callback(wake)
    await asyncio.wait({ended}, timeout=sources.slow.seconds_left(reference.source, reference.name))
    if not future.done():
        return sources.overdue(reference.source, reference.name)
    problem = future.exception()
    if problem is not None:
        assert isinstance(problem, SecretReadError)
        return problem
    everywhere.hide(future.result(), reference.text)
    return future.result()


def _log_unreadable(reference: str, error: SecretReadError) -> None:
    # Imported here: commands that only list things load no logging.
    import structlog

    log = structlog.get_logger(__name__)
    log.warning("secret.unreadable", reference=reference, error=str(error))


def _has(value: Json, path: ValuePath) -> bool:
    """Whether a value has a text at a path: a rendered configuration may lack some of its keys."""
    try:
        return isinstance(value_at(value, path), str)
    except (KeyError, IndexError, TypeError):
        return False


def _state(text: str) -> Any:
    """Return a value that changes with a secret, or None if there is nothing to read."""
    reference = parse(text)
    assert reference is not None
    if reference.is_slow:
        return None
    try:
        if reference.source == "env":
            return sources.environment_value(reference.name)
        status = path_of(reference.name).stat()
    except (OSError, ValueError, SecretReadError):
        return None
    # Opening a pipe would block, and consume data meant for another reader.
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_WATCHED_BYTES:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def path_of(text: str) -> Path:
    """Return the file that a reference names; raise `OSError` for the home of an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, str(error).rstrip("."), text) from None


def _missing(problem: str) -> DefiniteFailure:
    return DefiniteFailure(problem, code="secret_missing", kind="input", may_retry=False)
