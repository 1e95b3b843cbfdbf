"""The navigation that every page has."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from agent.core.scopes import Scope


@dataclass(frozen=True, slots=True)
class Item:
    """A link to a page."""

    label: str
    path: str
    key: str
    """The key that opens it after `g`."""
    scope: Scope = "read"


ITEMS: Final = (
    Item("Inbox", "/", "i"),
    Item("Tasks", "/tasks", "t"),
    Item("Workflows", "/workflows", "w"),
    Item("Triggers", "/triggers", "s"),
    Item("Queues", "/queues", "q"),
    Item("Spend", "/spend", "m"),
    Item("Health", "/health", "h"),
    Item("Events", "/events", "e"),
)


def items(path: str, scopes: Collection[Scope]) -> list[tuple[Item, bool]]:
    """Return the pages that a viewer may open, each with whether it is shown now."""
    return [(item, _is_shown(item, path)) for item in ITEMS if item.scope in scopes]


def _is_shown(item: Item, path: str) -> bool:
    if item.path == "/":
        return path == "/" or path.startswith("/questions")
    return path == item.path or path.startswith(item.path + "/")
