"""Steps of `feed-digest.yaml`."""

from typing import Any


def write(entries: list[dict[str, Any]]) -> str:
    """Return a line for each entry."""
    return "\n".join(f"- {each.get('title')}: {each.get('link')}" for each in entries)
