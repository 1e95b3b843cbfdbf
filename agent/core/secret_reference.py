"""How a definition refers to a secret: the one syntax of all places that take a reference.

A reference is a whole text, or an authorization word and a reference: `Bearer env:TOKEN`.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

from agent.core.quick_classes.quick_dataclasses import dataclass

Source = Literal["env", "file", "keyring", "exec"]

FORMS: Final = "env:NAME, file:PATH, keyring:SERVICE/NAME or exec:NAME"
"""What messages and descriptions say about references."""

_ENV: Final = r"env:[A-Z_][A-Z0-9_]*"
# The last slash separates: services are often addresses, names seldom contain one.
_KEYRING: Final = r"keyring:[^/\s][^\r\n]*/[^/\r\n]+"
_EXEC: Final = r"exec:[A-Za-z_][A-Za-z0-9_-]*"
COMMAND_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_-]*$"
"""The names of commands in `[secrets.exec]`."""

PATTERN: Final = rf"^{_ENV}$|^file:.+|^{_KEYRING}$|^{_EXEC}$"
"""For fields that must hold a reference."""
PATTERN_OR_EMPTY: Final = rf"^$|{PATTERN}"

# `file://…` is a URL, not a reference.
ANY: Final = rf"{_ENV}|file:/?[^/\s].*|{_KEYRING}|{_EXEC}"
"""A reference inside of a longer pattern."""

# The recipient of a message may be `apprise:env:NAME`.
_reference = re.compile(
    rf"^(?:(?P<word>(?i:Bearer|Basic|Token|ApiKey)) |apprise:)?(?P<reference>{ANY})$"
)

ValuePath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference in its parts."""

    source: Source
    name: str
    """What follows the source's colon."""
    word: str | None = None
    """The authorization word in front of it."""

    @property
    def text(self) -> str:
        """The reference without the word."""
        return f"{self.source}:{self.name}"

    @property
    def is_slow(self) -> bool:
        """Whether reading it may take long: a command runs, or a keyring asks a person."""
        return self.source in ("keyring", "exec")


def parse(text: str) -> Reference | None:
    """Return the reference that a text is; None if it is only a text."""
    match = _reference.match(text)
    if match is None:
        return None
    source, _, name = match["reference"].partition(":")
    return Reference(source, name, match["word"])  # type: ignore[arg-type]


def references(value: Any, at: ValuePath = ()) -> Iterator[ValuePath]:
    """Yield the paths in a definition that hold a reference."""
    if isinstance(value, str):
        if _reference.match(value):
            yield at
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from references(member, (*at, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from references(member, (*at, index))


def value_at(value: Any, path: ValuePath) -> Any:
    """Return the member of a value at a path."""
    for key in path:
        value = value[key]
    return value
