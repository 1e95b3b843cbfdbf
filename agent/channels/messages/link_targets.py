"""Which links may be links, and whose targets must be shown beside their texts."""

import re
from typing import Final
from urllib.parse import urlsplit

MAX_TARGET: Final = 2000
_ADDRESS: Final = re.compile(r"://|@|(?i:\bwww\.)|\w\.\w|^\s*//")
"""Text that a person may take for an address."""


def is_linkable(target: str) -> bool:
    """Whether a target is an ordinary address: other schemes can mention people or run commands."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return False
    has_place = bool(parts.netloc) if parts.scheme in ("http", "https") else bool(parts.path)
    return parts.scheme in ("http", "https", "mailto") and has_place and len(target) <= MAX_TARGET


def must_show(text: str, target: str) -> bool:
    """Whether a link's text could be taken for another address than its target."""
    if not text.strip():
        return True
    if _bare(text) == _bare(target):
        return False
    # A name before the host, as in https://bank.example@evil.example, deceives by itself.
    return _ADDRESS.search(text) is not None or "@" in urlsplit(target).netloc


def _bare(text: str) -> str:
    return re.sub(r"^(https?://|mailto:)", "", text.strip().lower()).rstrip("/")
