"""What it costs to compare a value: a list that holds one large text many times takes no memory."""

from collections.abc import Mapping
from typing import Any, Final

_CHARS_PER_OPERATION: Final = 4096
_VALUES_PER_OPERATION: Final = 16


def weight(value: Any) -> int:
    """Return the operations that looking at all of a value is charged with."""
    if isinstance(value, str):
        return len(value) // _CHARS_PER_OPERATION
    if isinstance(value, Mapping):
        return len(value) // _VALUES_PER_OPERATION + sum(map(weight, value.values()))
    if isinstance(value, list | tuple):
        return len(value) // _VALUES_PER_OPERATION + sum(map(weight, value))
    return 0
