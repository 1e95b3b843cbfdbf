"""Tokens of the HTTP API, their scopes, and the files in the home directory that hold them.

The first start creates the file `token`: the owner's token, with every scope, readable by its owner
alone. `tokens.json` has the further tokens with their scopes, and only the hashes of their texts.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import structlog

from agent.core.ids import content_hash, new_token
from agent.core.scopes import SCOPES, work_scopes
from agent.server.access.grants import (
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Grants,
    TokenError,
    TokenGrant,
    check_new,
    grant_of,
)

log = structlog.get_logger(__name__)

OWNER: Final = "owner"
"""The name of the token that the first start creates."""


class Tokens(Grants):
    """The tokens of one home directory."""

    @property
    def owner_file(self) -> Path:
        """The file of the owner's token."""
        return self._home / "token"

    @property
    def _listed_file(self) -> Path:
        return self._home / "tokens.json"

    @property
    def _files(self) -> tuple[Path, ...]:
        return (self.owner_file, self._listed_file)

    def ensure_owner(self) -> None:
        """Create the owner's token unless there is one, in a file that only the owner can read."""
        self._home.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        path = self.owner_file
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        except FileExistsError:
            path.chmod(PRIVATE_FILE)
            if path.read_text(encoding="utf-8").strip():
                return
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(new_token() + "\n")

    def create(
        self, name: str, scopes: Iterable[str], now: str | None, expires: str | None = None
    ) -> str:
        """Create a token and return its text, which is not stored; `expires` is in ISO 8601."""
        granted = check_new(name, set(scopes))
        token = new_token()
        with self._changing(self._listed_file) as listed:
            if name == OWNER or any(entry["name"] == name for entry in listed):
                raise TokenError(f"there is already a token called {name!r}")
            listed.append(
                {
                    "name": name,
                    "scopes": granted,
                    "hash": content_hash(token),
                    "created_at": now,
                    "expires": expires,
                }
            )
        return token

    def revoke(self, name: str) -> None:
        """Remove a token."""
        if name == OWNER:
            raise TokenError(
                f"to replace the owner's token, remove {self.owner_file} and restart the agent"
            )
        with self._changing(self._listed_file) as listed:
            remaining = [entry for entry in listed if entry["name"] != name]
            if len(remaining) == len(listed):
                raise TokenError(f"there is no token called {name!r}")
            listed[:] = remaining

    def listed(self) -> list[dict[str, Any]]:
        """Return the created tokens, without their hashes."""
        return [
            {name: entry[name] for name in ("name", "scopes", "created_at", "expires")}
            for entry in self._read_entries(self._listed_file)
        ]

    def _read_grants(self) -> list[TokenGrant]:
        return [*self._listed_grants(), *self._owner_grant()]

    def _listed_grants(self) -> list[TokenGrant]:
        try:
            listed = self._read_entries(self._listed_file)
        except TokenError as error:
            # The listed tokens are not accepted then; the owner's still is.
            log.error("api.tokens_unreadable", error=str(error))
            return []
        return [grant_of(entry, queues=work_scopes(entry["scopes"])) for entry in listed]

    def _owner_grant(self) -> list[TokenGrant]:
        try:
            owner = self._read(self.owner_file).strip()
        except TokenError as error:
            log.error("api.token_unreadable", error=str(error))
            owner = ""
        except (OSError, UnicodeError):
            owner = ""
        return [TokenGrant(OWNER, frozenset(SCOPES), content_hash(owner))] if owner else []
