"""Tokens of the HTTP API, their scopes, and the files in the home directory that hold them.

The first start makes `token`, which may do everything and whose text is there to be read by its
owner alone. Further ones are made with fewer scopes; only their hashes are kept, in `tokens.json`.
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
"""The name of the token that is made at the first start."""

LOOK_SECONDS: Final = 0.5
"""A token that was revoked may still be used for so long; a new one counts at once."""
_PRIVATE_FILE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


class TokenError(ValueError):
    """A token cannot be made or removed; the message says why."""


class ExpiredError(Exception):
    """A token is right, and its time is over."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the token {name!r} has expired")
        self.name = name


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows, and under which name it is known."""

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
    """The tokens of one home directory; changes to the files count within a second."""

    def __init__(
        self, home: Path, trust: Trust | None = None, now: Callable[[], int] | None = None
    ) -> None:
        self._home = home
        self._trust = trust or Trust()
        self._now = now or Clock().now
        self._seen: tuple[object, ...] | None = None
        self._looked_at = 0.0
        self._grants: list[Grant] = []

    @property
    def owner_file(self) -> Path:
        """Where the owner's token is."""
        return self._home / "token"

    @property
    def _listed_file(self) -> Path:
        return self._home / "tokens.json"

    def ensure_owner(self) -> None:
        """Make the owner's token unless there is one; nobody else may read its file."""
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

    def grant_of(self, token: str) -> Grant | None:
        """Return what a token allows, or None; how long it takes says nothing about which fits.

        Raises `ExpiredError` for a token whose time is over.
        """
        given = content_hash(token.encode("utf-8", errors="replace"))
        # Looking at files for every request would cost more than many answers do.
        if self._has_just_looked():
            found = self._find(given)
            if found is not None:
                return self._unexpired(found)
        self._look()
        return self._unexpired(self._find(given))

    def still_holds(self, grant: Grant) -> bool:
        """Whether what a token allowed when a request came is still allowed."""
        if not self._has_just_looked():
            self._look()
        return grant in self._grants and not self._is_expired(grant)

    def _unexpired(self, grant: Grant | None) -> Grant | None:
        if grant is not None and self._is_expired(grant):
            raise ExpiredError(grant.name)
        return grant

    def _is_expired(self, grant: Grant) -> bool:
        return grant.expires_at is not None and grant.expires_at <= self._now()

    def _find(self, given: str) -> Grant | None:
        found = None
        for grant in self._grants:
            if hmac.compare_digest(grant.hash, given):
                found = grant
        return found

    def _has_just_looked(self) -> bool:
        return time.monotonic() - self._looked_at < LOOK_SECONDS

    def create(
        self, name: str, scopes: Iterable[str], now: str | None, expires: str | None = None
    ) -> str:
        """Make a token and return its text, which is not kept; `expires` is an instant (ISO)."""
        listed = self._entries()
        wanted = [scope for scope in SCOPES if scope in set(scopes)]
        if not wanted or set(scopes) - set(SCOPES):
            raise TokenError(f"a token needs scopes, of {', '.join(SCOPES)}")
        if not name or len(name) > 100 or not name.isprintable():
            raise TokenError("a token needs a name of at most 100 characters")
        if name == OWNER or any(entry["name"] == name for entry in listed):
            raise TokenError(f"there is already a token called {name!r}")
        token = new_token()
        entry = {
            "name": name,
            "scopes": wanted,
            "hash": content_hash(token),
            "created_at": now,
            "expires": expires,
        }
        self._write([*listed, entry])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token: it counts for nothing from now on."""
        listed = self._entries()
        if name == OWNER:
            raise TokenError(f"the owner's token is replaced by removing {self.owner_file}")
        left = [entry for entry in listed if entry["name"] != name]
        if len(left) == len(listed):
            raise TokenError(f"there is no token called {name!r}")
        self._write(left)

    def listed(self) -> list[dict[str, Any]]:
        """Return the tokens that were made, without anything that would let one in."""
        return [
            {name: entry[name] for name in ("name", "scopes", "created_at", "expires")}
            for entry in self._entries()
        ]

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        seen = (_mark(self.owner_file), _mark(self._listed_file))
        if seen != self._seen:
            self._grants, self._seen = [*self._listed_grants(), *self._owner_grant()], seen

    def _listed_grants(self) -> list[Grant]:
        try:
            listed = self._entries()
        except TokenError as error:
            # These let nobody in, then; the owner's token still does.
            log.error("api.tokens_unreadable", error=str(error))
            return []
        return [
            Grant(each["name"], implied(each["scopes"]), each["hash"], _instant(each["expires"]))
            for each in listed
        ]

    def _owner_grant(self) -> list[Grant]:
        try:
            owner = self._read(self.owner_file).strip()
        except TokenError as error:
            log.error("api.token_unreadable", error=str(error))
            owner = ""
        except (OSError, UnicodeError):
            owner = ""
        return [Grant(OWNER, frozenset(SCOPES), content_hash(owner))] if owner else []

    def _entries(self) -> list[dict[str, Any]]:
        try:
            text = self._read(self._listed_file)
        except FileNotFoundError:
            return []
        except (OSError, UnicodeError) as error:
            raise TokenError(f"{self._listed_file} cannot be read: {error}") from None
        try:
            found = json.loads(text)
            return [
                {
                    "name": str(entry["name"]),
                    "scopes": [scope for scope in SCOPES if scope in entry["scopes"]],
                    "hash": bytes.fromhex(entry["hash"]).hex(),
                    "created_at": entry.get("created_at"),
                    "expires": _checked_instant(entry.get("expires")),
                }
                for entry in found
            ]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TokenError(
                f"{self._listed_file} is damaged: remove it, and make the tokens anew"
            ) from None

    def _read(self, path: Path) -> str:
        """Read a file that lets people in, unless people could have written it who may not."""
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
    """Return an instant as it is written; raise `ValueError` for what is none."""
    _instant(text)
    return None if text is None else str(text)


def _instant(text: str | None) -> int | None:
    """Return an instant in microseconds; without a time zone it is in UTC."""
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * SECOND)


def _mark(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file's content, its owner and its mode."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
