"""The size of a value, without encoding it: small values are processed on the event loop, others in threads.

Redaction, encoding and schema checks take time that grows with the value. Large data of a step must
not block the event loop.
"""

from typing import Final

from agent.core.plain_json import Json

SMALL_BYTES: Final = 65_536
_NODE_BYTES: Final = 64
"""Size of each member of a value besides its text, so that a long list of numbers is large."""


def is_small(value: Json) -> bool:
    """Whether a value may be processed on the event loop; this reads a bounded part of it."""
    if value is None:
        return True
    return _size(value, SMALL_BYTES, _NODE_BYTES) <= SMALL_BYTES


def surely_exceeds(value: Json, limit_bytes: int) -> bool:
    """Whether a value is certainly longer than this as JSON; False if only encoding it would tell."""
    return _size(value, limit_bytes, 1) > limit_bytes


def size_up_to(value: Json, limit_bytes: int) -> int:
    """Return a lower bound of a value's length as JSON; counting stops at the limit."""
    return _size(value, limit_bytes, 1)


def _size(value: Json, limit: int, node_bytes: int) -> int:
    """Add up the texts and members of a value, until they exceed the limit.

    Only plain types are read: the methods of others are the step's own code.
    """
    size = 0
    pending = [value]
    while pending:
        member = pending.pop()
        size += node_bytes
        kind = type(member)
        if kind is str:
            size += len(member)
        elif kind is dict:
            if size + len(member) * node_bytes > limit:
                return size + len(member) * node_bytes
            for key, item in member.items():
                size += len(key) if type(key) is str else 0
                pending.append(item)
        elif kind is list or kind is tuple:
            if size + len(member) * node_bytes > limit:
                return size + len(member) * node_bytes
            pending.extend(member)
        if size > limit:
            break
    return size
