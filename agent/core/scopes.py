"""The scopes of tokens and of people in chats: what each allows."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

Scope = Literal["read", "operate", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# A scope to change something includes reading it. Definitions are code, so admin is everything.
_IMPLIED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "approve": frozenset({"read", "approve"}),
    "admin": frozenset(SCOPES),
}


def implied(names: Iterable[str]) -> frozenset[Scope]:
    """Return all scopes that these include; an unknown one includes nothing."""
    given = set(names)
    return frozenset(scope for name in SCOPES if name in given for scope in _IMPLIED[name])
