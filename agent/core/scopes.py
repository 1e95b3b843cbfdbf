"""Scopes of tokens and of paired chat accounts. `agent.approvals.permission` checks them."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

Scope = Literal["read", "operate", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

# Every scope includes reading. Admin is everything: it may change workflows, which are code.
_IMPLIED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "approve": frozenset({"read", "approve"}),
    "admin": frozenset(SCOPES),
}


def implied(names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes that some scopes include; unknown names include nothing."""
    granted = set(names)
    return frozenset(scope for name in SCOPES if name in granted for scope in _IMPLIED[name])
