"""What somebody may do from afar: the scopes of tokens and of people in chats."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

Scope = Literal["read", "operate", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# Whoever may change something may see it; definitions are code, so admin is everything.
_IMPLIED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "approve": frozenset({"read", "approve"}),
    "admin": frozenset(SCOPES),
}


def implied(names: Iterable[str]) -> frozenset[Scope]:
    """Return all that some scopes allow; what is none of them allows nothing."""
    given = set(names)
    return frozenset(scope for name in SCOPES if name in given for scope in _IMPLIED[name])
