"""How large a value is, without writing it: small ones are treated on the event loop, others beside it.

Redaction, encoding and schema checks take time that grows with the value. The size of a step's data
must not decide how long the event loop is blocked.
"""

from typing import Final

from agent.steps.types.outcome import Json

SMALL_BYTES: Final = 65_536
_NODE_BYTES: Final = 64
"""What each member of a value counts besides its text, so that long lists of numbers are large."""


def is_small(value: Json) -> bool:
    """Whether a value may be treated on the event loop; this looks at a bounded part of it."""
    if value is None:
        return True
    return _size(value, SMALL_BYTES, _NODE_BYTES) <= SMALL_BYTES


def surely_exceeds(value: Json, limit_bytes: int) -> bool:
    """Whether a value is longer than this as JSON; False where only writing it would tell."""
    return _size(value, limit_bytes, 1) > limit_bytes


def size_up_to(value: Json, limit_bytes: int) -> int:
    """Return how long a value is as JSON at least; what is beyond the limit is not counted."""
    return _size(value, limit_bytes, 1)


def _size(value: Json, limit: int, node: int) -> int:
    """Add up the texts and members of a value, until they are more than the limit.

    Only plain types are looked into: the methods of others are the step's own code.
    """
    found = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        found += node
        kind = type(each)
        if kind is str:
            found += len(each)
        elif kind is dict:
            if found + len(each) * node > limit:
                return found + len(each) * node
            for key, member in each.items():
                found += len(key) if type(key) is str else 0
                waiting.append(member)
        elif kind is list or kind is tuple:
            if found + len(each) * node > limit:
                return found + len(each) * node
            waiting.extend(each)
        if found > limit:
            break
    return found
