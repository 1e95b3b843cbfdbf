"""Credentials of the server: the permissions of each, in private files of the home directory.

A file has the hashes of the credentials' texts, never the texts. Several processes change it (the
daemon, each command line): `changing` holds a lock, so that no change is lost.
"""

import fcntl
import hmac
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from agent.approvals.permission import Principal
from agent.core.clock import SECOND, Clock
from agent.core.files.file_trust import Trust, can_be_written_by_others
from agent.core.ids import content_hash
from agent.core.scopes import SCOPES, Scope, implied, is_work_scope

CACHE_SECONDS: Final = 0.5
"""A revoked credential may still be accepted for this long; a new one is accepted at once."""
PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700

Entry = dict[str, Any]


class TokenError(ValueError):
    """A credential cannot be created or removed; the message says why."""


class ExpiredError(Exception):
    """A token is known, but has expired."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the token {name!r} has expired")
        self.name = name


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A credential's name and permissions."""

    name: str
    scopes: frozenset[Scope]
    hash: str = field(repr=False)
    expires_at: int | None = None
    """In microseconds; None: never."""
    channel: str = "api"
    """`api` for a token, `page` for a session of a browser."""
    queues: frozenset[str] = frozenset()
    """Its scopes for external workers."""

    @property
    def principal(self) -> Principal:
        """The caller that this identifies: a question's `who` may list `api:NAME` or `page:NAME`."""
        return Principal(self.channel, self.name, self.scopes, queues=self.queues)


def grant_of(
    entry: Entry, *, channel: str = "api", queues: frozenset[str] = frozenset()
) -> TokenGrant:
    """Return the credential that a file's entry describes."""
    scopes, expires_at = implied(entry["scopes"]), instant_of(entry["expires"])
    return TokenGrant(entry["name"], scopes, entry["hash"], expires_at, channel, queues)


class Grants(ABC):
    """The credentials in the files of a home directory; changes take effect within a second."""

    def __init__(
        self, home: Path, trust: Trust | None = None, now: Callable[[], int] | None = None
    ) -> None:
        self._home = home
        self._trust = trust or Trust()
        self._now = now or Clock().now
        self._file_state: tuple[object, ...] | None = None
        self._loaded_at = 0.0
        self._grants: list[TokenGrant] = []

    @property
    @abstractmethod
    def _files(self) -> tuple[Path, ...]:
        """The files that the grants are read from."""

    @abstractmethod
    def _read_grants(self) -> list[TokenGrant]:
        """Read the grants from the files; a file that cannot be used is logged."""

    def grant_of(self, token: str) -> TokenGrant | None:
        """Return the permissions of a credential, or None; the time it takes reveals nothing.

        Raises `ExpiredError` for one that has expired.
        """
        token_hash = content_hash(token.encode("utf-8", errors="replace"))
        # Checking the files at every request would cost more than many responses.
        if self._is_fresh():
            grant = self._find(token_hash)
            if grant is not None:
                return self._unexpired(grant)
        self._load()
        return self._unexpired(self._find(token_hash))

    def still_holds(self, grant: TokenGrant) -> bool:
        """Whether a grant is still valid: it was not revoked and has not expired."""
        if not self._is_fresh():
            self._load()
        return grant in self._grants and not self._is_expired(grant)

    def _unexpired(self, grant: TokenGrant | None) -> TokenGrant | None:
        if grant is not None and self._is_expired(grant):
            raise ExpiredError(grant.name)
        return grant

    def _is_expired(self, grant: TokenGrant) -> bool:
        return grant.expires_at is not None and grant.expires_at <= self._now()

    def _find(self, token_hash: str) -> TokenGrant | None:
        match = None
        # Compares with every hash, so that the time does not depend on which one matches.
        for grant in self._grants:
            if hmac.compare_digest(grant.hash, token_hash):
                match = grant
        return match

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._loaded_at < CACHE_SECONDS

    def _load(self) -> None:
        self._loaded_at = time.monotonic()
        state = tuple(_file_state(path) for path in self._files)
        if state != self._file_state:
            self._grants = self._read_grants()
            self._file_state = state

    def _read(self, path: Path) -> str:
        """Read a file, unless users who are not trusted could have changed it."""
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            is_ours = self._trust.covers_user(status.st_uid)
            if not is_ours or can_be_written_by_others(status, self._trust):
                raise TokenError(f"{path} is ignored: other users can change it")
            return file.read()

    def _read_entries(self, path: Path) -> list[Entry]:
        try:
            text = self._read(path)
        except FileNotFoundError:
            return []
        except (OSError, UnicodeError) as error:
            raise TokenError(f"{path} cannot be read: {error}") from None
        try:
            return [_checked(entry) for entry in json.loads(text)]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TokenError(f"{path} is damaged: remove it and create its content again") from None

    @contextmanager
    def _changing(self, path: Path) -> Iterator[list[Entry]]:
        """Yield the entries of a file to change in place, and write them at the end."""
        self._home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        descriptor = os.open(
            path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            entries = self._read_entries(path)
            yield entries
            _write(path, entries)
        finally:
            os.close(descriptor)


def check_new(name: str, scopes: set[str]) -> list[str]:
    """Return the scopes of a new credential in their order; raise `TokenError` if it is not valid."""
    granted = _in_order(scopes)
    names = f"{', '.join(SCOPES)}, work:QUEUE, work:*"
    if unknown := sorted(scopes - set(granted)):
        raise TokenError(f"there is no scope {unknown[0]!r}: use {names}")
    if not granted:
        raise TokenError(f"a token needs at least one scope: {names}")
    if not name or len(name) > 100 or not name.isprintable():
        raise TokenError("a token needs a name of at most 100 characters")
    return granted


def _in_order(scopes: Iterable[str]) -> list[str]:
    """Return the scopes that exist: the fixed ones in their order, then those of queues."""
    wanted = set(scopes)
    of_queues = sorted(scope for scope in wanted if is_work_scope(scope))
    return [*(scope for scope in SCOPES if scope in wanted), *of_queues]


def instant_of(text: str | None) -> int | None:
    """Return an instant in microseconds; without a time zone it is in UTC."""
    if text is None:
        return None
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return int(instant.timestamp() * SECOND)


def _checked(entry: Entry) -> Entry:
    """Return an entry with the members that each has; raise if it is damaged."""
    expires = entry.get("expires")
    instant_of(expires)
    return {
        **entry,
        "name": str(entry["name"]),
        "scopes": _in_order(entry["scopes"]),
        "hash": bytes.fromhex(entry["hash"]).hex(),
        "created_at": entry.get("created_at"),
        "expires": None if expires is None else str(expires),
    }


def _write(path: Path, entries: list[Entry]) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _file_state(path: Path) -> tuple[int, ...] | None:
    """Return values that change with a file's content, owner or mode."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
