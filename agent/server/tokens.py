"""Tokens of the HTTP API, their scopes, and the files in the home directory that hold them.

The first start creates the file `token`: the owner's token, with every scope, readable by its owner
alone. `tokens.json` has the further tokens with their scopes, and only the hashes of their texts.
"""

import hmac
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from agent.approvals.permission import Principal
from agent.core.clock import SECOND, Clock
from agent.core.file_trust import Trust, can_be_written_by_others
from agent.core.ids import content_hash, new_token
from agent.core.scopes import SCOPES, Scope, implied

log = structlog.get_logger(__name__)

OWNER: Final = "owner"
"""The name of the token that the first start creates."""

CACHE_SECONDS: Final = 0.5
"""A revoked token may still be accepted for this long; a new one is accepted at once."""
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


class TokenError(ValueError):
    """A token cannot be created or removed; the message says why."""


class ExpiredError(Exception):
    """A token is known, but has expired."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the token {name!r} has expired")
        self.name = name


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A token's name and what it allows."""

    name: str
    scopes: frozenset[Scope]
    hash: str = field(repr=False)
    expires_at: int | None = None
    """In microseconds; None: never."""

    @property
    def principal(self) -> Principal:
        """The caller that this token identifies: a question's `who` may list `api:NAME`."""
        return Principal("api", self.name, self.scopes)


class Tokens:
    """The tokens of one home directory; changes to the files take effect within a second."""

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
    def owner_file(self) -> Path:
        """The file of the owner's token."""
        return self._home / "token"

    @property
    def _listed_file(self) -> Path:
        return self._home / "tokens.json"

    def ensure_owner(self) -> None:
        """Create the owner's token unless there is one, in a file that only the owner can read."""
        self._home.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        path = self.owner_file
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
        except FileExistsError:
            path.chmod(_PRIVATE_FILE)
            if path.read_text(encoding="utf-8").strip():
                return
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(new_token() + "\n")

    def grant_of(self, token: str) -> TokenGrant | None:
        """Return what a token allows, or None; the time it takes reveals nothing about the tokens.

        Raises `ExpiredError` for an expired token.
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
        """Whether a grant is still valid: the token was not revoked and has not expired."""
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
        # Compares with every token, so that the time does not depend on which one matches.
        for grant in self._grants:
            if hmac.compare_digest(grant.hash, token_hash):
                match = grant
        return match

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._loaded_at < CACHE_SECONDS

    def create(
        self, name: str, scopes: Iterable[str], now: str | None, expires: str | None = None
    ) -> str:
        """Create a token and return its text, which is not stored; `expires` is in ISO 8601."""
        listed = self._entries()
        wanted = set(scopes)
        granted = [scope for scope in SCOPES if scope in wanted]
        if unknown := sorted(wanted - set(SCOPES)):
            raise TokenError(f"there is no scope {unknown[0]!r}: use {', '.join(SCOPES)}")
        if not granted:
            raise TokenError(f"a token needs at least one scope: {', '.join(SCOPES)}")
        if not name or len(name) > 100 or not name.isprintable():
            raise TokenError("a token needs a name of at most 100 characters")
        if name == OWNER or any(entry["name"] == name for entry in listed):
            raise TokenError(f"there is already a token called {name!r}")
        token = new_token()
        entry = {
            "name": name,
            "scopes": granted,
            "hash": content_hash(token),
            "created_at": now,
            "expires": expires,
        }
        self._write([*listed, entry])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token."""
        listed = self._entries()
        if name == OWNER:
            raise TokenError(
                f"to replace the owner's token, remove {self.owner_file} and restart the agent"
            )
        remaining = [entry for entry in listed if entry["name"] != name]
        if len(remaining) == len(listed):
            raise TokenError(f"there is no token called {name!r}")
        self._write(remaining)

    def listed(self) -> list[dict[str, Any]]:
        """Return the created tokens, without their hashes."""
        return [
            {name: entry[name] for name in ("name", "scopes", "created_at", "expires")}
            for entry in self._entries()
        ]

    def _load(self) -> None:
        self._loaded_at = time.monotonic()
        state = (_file_state(self.owner_file), _file_state(self._listed_file))
        if state != self._file_state:
            self._grants = [*self._listed_grants(), *self._owner_grant()]
            self._file_state = state

    def _listed_grants(self) -> list[TokenGrant]:
        try:
            listed = self._entries()
        except TokenError as error:
            # The listed tokens are not accepted then; the owner's still is.
            log.error("api.tokens_unreadable", error=str(error))
            return []
        return [
            TokenGrant(
                entry["name"], implied(entry["scopes"]), entry["hash"], _instant(entry["expires"])
            )
            for entry in listed
        ]

    def _owner_grant(self) -> list[TokenGrant]:
        try:
            owner = self._read(self.owner_file).strip()
        except TokenError as error:
            log.error("api.token_unreadable", error=str(error))
            owner = ""
        except (OSError, UnicodeError):
            owner = ""
        return [TokenGrant(OWNER, frozenset(SCOPES), content_hash(owner))] if owner else []

    def _entries(self) -> list[dict[str, Any]]:
        try:
            text = self._read(self._listed_file)
        except FileNotFoundError:
            return []
        except (OSError, UnicodeError) as error:
            raise TokenError(f"{self._listed_file} cannot be read: {error}") from None
        try:
            entries = json.loads(text)
            return [
                {
                    "name": str(entry["name"]),
                    "scopes": [scope for scope in SCOPES if scope in entry["scopes"]],
                    "hash": bytes.fromhex(entry["hash"]).hex(),
                    "created_at": entry.get("created_at"),
                    "expires": _checked_instant(entry.get("expires")),
                }
                for entry in entries
            ]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TokenError(
                f"{self._listed_file} is damaged: remove it and create the tokens again"
            ) from None

    def _read(self, path: Path) -> str:
        """Read a token file, unless users who are not trusted could have changed it."""
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            is_ours = self._trust.covers_user(status.st_uid)
            if not is_ours or can_be_written_by_others(status, self._trust):
                raise TokenError(f"{path} is ignored: other users can change it")
            return file.read()

    def _write(self, entries: list[dict[str, Any]]) -> None:
        self._home.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        unfinished = self._listed_file.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(entries, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._listed_file)


def _checked_instant(text: Any) -> str | None:
    """Return an instant unchanged; raise `ValueError` if it is malformed."""
    _instant(text)
    return None if text is None else str(text)


def _instant(text: str | None) -> int | None:
    """Return an instant in microseconds; without a time zone it is in UTC."""
    if text is None:
        return None
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return int(instant.timestamp() * SECOND)


def _file_state(path: Path) -> tuple[int, ...] | None:
    """Return values that change with a file's content, owner or mode."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
