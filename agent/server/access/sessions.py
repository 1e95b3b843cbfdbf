"""Sessions of browsers, and the one-time links that begin them, in `sessions.json`.

A link is good for a minute and for one session. The file has hashes only: the link's text is in its
address, the session's in the browser's cookie. Like tokens they belong to the home directory, so that
they outlive a restart and a restored database, and a command revokes them while the daemon is down.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from agent.core.clock import SECOND, to_iso
from agent.core.ids import content_hash, new_token
from agent.core.scopes import Scope, implied
from agent.server.access.grants import (
    Entry,
    Grants,
    TokenError,
    TokenGrant,
    check_new,
    grant_of,
    instant_of,
)
from agent.server.access.tokens import Tokens

log = structlog.get_logger(__name__)

CHANNEL: Final = "page"
"""The channel of answers given on the dashboard: they are recorded as `page:NAME`."""
LINK_SECONDS: Final = 60
SESSION_SECONDS: Final = 30 * 86_400
_LINK, _SESSION = "link", "session"


def cookie_name(home: Path) -> str:
    """Return the name of the cookie: browsers send cookies to every port of a host, and so to other agents."""
    return f"agent_{content_hash(str(home.absolute()).encode())[:8]}"


class LinkError(ValueError):
    """A one-time link cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that a link has begun."""

    token: str
    """The text for the cookie."""
    name: str
    scopes: frozenset[Scope]
    seconds: int


class Sessions(Grants):
    """The sessions of one home directory."""

    @property
    def _file(self) -> Path:
        return self._home / "sessions.json"

    @property
    def _files(self) -> tuple[Path, ...]:
        return (self._file,)

    def create_link(
        self, name: str, scopes: Iterable[str], seconds: int = SESSION_SECONDS
    ) -> tuple[str, str]:
        """Return the code of a link and the session's name, with a number if the name is taken."""
        granted = check_new(name, set(scopes))
        code, now = new_token(), self._now()
        tokens = {entry["name"] for entry in Tokens(self._home, self._trust).listed()}
        with self._changing(self._file) as entries:
            entries[:] = self._current(entries)
            taken = tokens | {entry["name"] for entry in entries}
            name = next(
                candidate
                for candidate in (name, *(f"{name}-{number}" for number in range(2, 10_000)))
                if candidate not in taken
            )
            entries.append(
                {
                    "name": name,
                    "scopes": granted,
                    "hash": content_hash(code),
                    "created_at": to_iso(now),
                    "expires": to_iso(now + LINK_SECONDS * SECOND),
                    "kind": _LINK,
                    "seconds": seconds,
                }
            )
        return code, name

    def check_link(self, code: str) -> str:
        """Return the name of the session that a link would begin; raise `LinkError`. Uses nothing up."""
        entries = self._read_entries(self._file)
        return str(self._link(entries, code)["name"])

    def begin(self, code: str) -> NewSession:
        """Begin a session with a link's code, which is used up; raise `LinkError`."""
        now = self._now()
        with self._changing(self._file) as entries:
            entry = self._link(entries, code)
            token, seconds = new_token(), int(entry["seconds"])
            entry.update(
                hash=content_hash(token),
                created_at=to_iso(now),
                expires=to_iso(now + seconds * SECOND),
                kind=_SESSION,
            )
            entries[:] = self._current(entries)
        return NewSession(token, entry["name"], implied(entry["scopes"]), seconds)

    def revoke(self, name: str) -> None:
        """End a session, or make a link unusable."""
        with self._changing(self._file) as entries:
            remaining = [entry for entry in entries if entry["name"] != name]
            if len(remaining) == len(entries):
                raise TokenError(f"there is no session called {name!r}")
            entries[:] = remaining

    def listed(self) -> list[dict[str, Any]]:
        """Return the open sessions, without their hashes."""
        return [
            {name: entry[name] for name in ("name", "scopes", "created_at", "expires")}
            for entry in self._current(self._read_entries(self._file))
            if entry.get("kind") == _SESSION
        ]

    def _link(self, entries: list[Entry], code: str) -> Entry:
        code_hash = content_hash(code.encode("utf-8", errors="replace"))
        session = None
        for entry in entries:
            if hmac.compare_digest(entry["hash"], code_hash) and entry.get("kind") == _LINK:
                session = entry
        if session is None:
            raise LinkError("this link was used already, or never existed")
        if (instant_of(session["expires"]) or 0) <= self._now():
            raise LinkError("this link has expired: it is good for a minute")
        return session

    def _current(self, entries: list[Entry]) -> list[Entry]:
        now = self._now()
        return [entry for entry in entries if (instant_of(entry["expires"]) or 0) > now]

    def _read_grants(self) -> list[TokenGrant]:
        try:
            entries = self._read_entries(self._file)
        except TokenError as error:
            log.error("page.sessions_unreadable", error=str(error))
            return []
        return [
            grant_of(entry, channel=CHANNEL) for entry in entries if entry.get("kind") == _SESSION
        ]
