"""Checks of what the user's own code reports: the items and cursors of commands and functions.

Also the keys and texts that several sources make: a key is never longer than the column that stores
it, and a text holds nothing that a database refuses.
"""

from typing import Any, Final

from agent.core.ids import content_hash
from agent.core.redaction import everywhere
from agent.store.db import json_values
from agent.store.db.json_values import NotPlainJsonError
from agent.triggers.watchers.source import Item, Json, SourceError

MAX_KEY: Final = 500
"""The longest key; a longer one is replaced by its hash."""
MAX_ITEM_BYTES: Final = 262_144
MAX_CURSOR_BYTES: Final = 65_536
MAX_MESSAGE: Final = 2_000


def bounded_key(key: str) -> str:
    """Return a key that can be stored: itself, or its hash if it is too long."""
    return key if len(key) <= MAX_KEY else f"sha256:{content_hash(key)}"


def storable(text: str) -> str:
    """Return a text with escapes for what no database stores: NUL and bytes that are not UTF-8.

    The names of files are such texts: Python reads a byte that is not UTF-8 as a lone surrogate.
    """
    text = text.replace("\0", "\\x00")
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def for_people(text: str) -> str:
    """Return a text for a message: without secrets, storable and short."""
    return storable(everywhere.redact(text)).strip()[:MAX_MESSAGE]


def item_of(reported: Any, where: str) -> Item:
    """Return what the user's code reported as an item; `where` names it in the message."""
    if not isinstance(reported, dict):
        raise SourceError(f'{where}: expected an object such as {{"key": "a1", …}}')
    key = reported.get("key")
    if isinstance(key, bool) or not isinstance(key, str | int | float) or key == "":
        raise SourceError(f"{where}: `key` must be a text or a number that identifies the item")
    data = _plain(reported, where, MAX_ITEM_BYTES, "an item")
    # After redaction: a secret in a key would be stored as well.
    return Item(bounded_key(str(data["key"])), data)


def cursor_of(reported: Any, where: str) -> Json:
    """Return what the user's code reported as its next cursor."""
    return _plain(reported, where, MAX_CURSOR_BYTES, "a cursor")


def collect(reported: list[tuple[str, Any]], most_items: int) -> list[Item]:
    """Return the items of a poll, each with where it was reported; the first of equal keys counts."""
    if len(reported) > most_items:
        raise SourceError(f"{len(reported)} items in one poll; at most {most_items} are accepted")
    items: dict[str, Item] = {}
    for where, value in reported:
        item = item_of(value, where)
        items.setdefault(item.key, item)
    return list(items.values())


def _plain(value: Any, where: str, most_bytes: int, what: str) -> Any:
    try:
        text = json_values.encode(value, where)
    except NotPlainJsonError as error:
        raise SourceError(storable(str(error))) from None
    size = len(text.encode("utf-8"))
    if size > most_bytes:
        raise SourceError(f"{where}: {what} has {size} bytes; at most {most_bytes} are stored")
    return everywhere.redact_value(json_values.decode(text))
