"""The bounds of one rendering: a template runs in the worker and must never block it.

Every loop iteration, filter, call and piece of text is charged here. Normally the counts end a runaway
template, so that it ends alike on every machine; the clock is the safety net.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

MAX_TEMPLATE_CHARS: Final = 65_536
MAX_OPERATIONS: Final = 1_000_000
MAX_TEXT_CHARS: Final = 4_000_000
MAX_TOTAL_CHARS: Final = 16_000_000
MAX_RANGE: Final = 10_000
MAX_INTEGER_BITS: Final = 4_096
MAX_DEPTH: Final = 200
"""Nesting of values; the store has the same limit."""
MAX_CPU_SECONDS: Final = 2.0

_CLOCK_EVERY: Final = 64
_CHARS_PER_OPERATION: Final = 4096
_VALUES_PER_OPERATION: Final = 16


class TemplateError(ValueError):
    """A template or an expression cannot be rendered; the message is for a person."""


class Meter:
    """Counts what one rendering has used, and ends it when that is too much."""

    __slots__ = ("_chars", "_deadline", "_operations", "is_strict")

    def __init__(self, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        """Whether what is no number has no value as one, where a template gives none: for Jinja it is 0."""
        self._operations = 0
        self._chars = 0
        # The thread's own time: a slow machine must not fail a harmless template.
        self._deadline = time.thread_time() + MAX_CPU_SECONDS

    def charge(self, operations: int = 1) -> None:
        """Count operations; every few dozen of them the clock is read."""
        before = self._operations
        self._operations = before + operations
        if self._operations > MAX_OPERATIONS:
            raise TemplateError(f"the template takes more than {MAX_OPERATIONS:,} operations")
        if before // _CLOCK_EVERY != self._operations // _CLOCK_EVERY:
            self._check_clock()

    def charge_text(self, chars: int) -> None:
        """Count text that is about to be made, before it takes any memory."""
        if chars > MAX_TEXT_CHARS:
            raise TemplateError(
                f"the template makes a text of {chars:,} characters, more than the "
                f"{MAX_TEXT_CHARS:,} that are allowed"
            )
        self._chars += chars
        if self._chars > MAX_TOTAL_CHARS:
            raise TemplateError(
                f"the templates make more than {MAX_TOTAL_CHARS:,} characters of text together"
            )
        self.charge(1 + chars // _CHARS_PER_OPERATION)

    def _check_clock(self) -> None:
        if time.thread_time() > self._deadline:
            raise TemplateError("the template takes too long")


def weight(value: Any) -> int:
    """Return the operations that comparing a whole value is charged with.

    Its size in memory says nothing: a list may contain one large text many times.
    """
    if isinstance(value, str):
        return len(value) // _CHARS_PER_OPERATION
    if isinstance(value, Mapping):
        return len(value) // _VALUES_PER_OPERATION + sum(map(weight, value.values()))
    if isinstance(value, list | tuple):
        return len(value) // _VALUES_PER_OPERATION + sum(map(weight, value))
    return 0
