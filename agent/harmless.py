"""Texts from mail, pages and models, written so that they cannot deceive whoever reads them."""

from typing import Final

_STEERING: Final = {
    number: ascii(chr(number))[1:-1]
    for number in [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    if chr(number) not in "\n\t"
}
"""Control characters, and those that turn the direction of writing, each as it is escaped."""


def harmless(text: str) -> str:
    """Write what would steer a terminal, or show a text in another order than it is, as escapes."""
    return text if text.isprintable() else text.translate(_STEERING)
