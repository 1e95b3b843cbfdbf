"""The scopes of tokens and of people in chats: what each allows.

Besides the fixed ones there is a scope for each queue of external workers: `work:QUEUE`, and `work:*`
for all of them. Such a scope includes nothing else: a worker sees the work of its queues.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, get_args

Scope = Literal["read", "operate", "approve", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

QUEUE_PATTERN: Final = r"^[a-z0-9][a-z0-9_.-]{0,99}$"
ALL_QUEUES: Final = "work:*"
_WORK: Final = "work:"
_QUEUE: Final = re.compile(QUEUE_PATTERN)

# A scope to change something includes reading it. Definitions are code, so admin is everything.
_IMPLIED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "approve": frozenset({"read", "approve"}),
    "admin": frozenset(SCOPES),
}


def implied(names: Iterable[str]) -> frozenset[Scope]:
    """Return all fixed scopes that these include; an unknown one includes nothing."""
    scopes = set(names)
    return frozenset(scope for name in SCOPES if name in scopes for scope in _IMPLIED[name])


def is_work_scope(name: str) -> bool:
    """Whether a scope is one of external workers."""
    return name == ALL_QUEUES or (
        name.startswith(_WORK) and _QUEUE.fullmatch(name[len(_WORK) :]) is not None
    )


def work_scopes(names: Iterable[str]) -> frozenset[str]:
    """Return the scopes of external workers among these; `admin` includes all queues."""
    named = set(names)
    scopes = {name for name in named if is_work_scope(name)}
    return frozenset(scopes | {ALL_QUEUES} if "admin" in named else scopes)


def may_work(names: Iterable[str], queue: str) -> bool:
    """Whether scopes allow the work of a queue."""
    scopes = work_scopes(names)
    return ALL_QUEUES in scopes or f"{_WORK}{queue}" in scopes
