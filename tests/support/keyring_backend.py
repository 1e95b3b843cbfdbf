"""A keyring of the library `keyring` for tests: entries in a JSON file, or what its variable says."""

import json
import os
import time
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class FileKeyring(KeyringBackend):
    """Reads entries of the file that `TEST_KEYRING` names; `locked` and `hangs` are states."""

    priority = 1

    def get_password(self, service: str, username: str) -> str | None:
        """Return an entry."""
        where = os.environ["TEST_KEYRING"]
        if where == "locked":
            raise KeyringLocked("Failed to unlock the collection!")
        if where == "hangs":
            time.sleep(60)
        entries: dict[str, str] = json.loads(Path(where).read_text(encoding="utf-8"))
        return entries.get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        """Refuse: tests write the file."""
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        """Refuse: tests write the file."""
        raise NotImplementedError
