"""A message as plain text, written so that no service reads a mention in it."""

import re
from collections.abc import Sequence
from typing import Final

from agent.channels.messages.document import Block, parse

MAX_LENGTH: Final = 8000
"""For Apprise, which cuts or splits further as each service requires."""
WORD_JOINER: Final = "\u2060"
"""Without width: it takes a mention or a command apart for the platform, and not for the reader."""
# As in the platforms' own rules: a name after an @ that does not continue a word. At the end of a
# piece the name may follow in another look.
_MENTION: Final = re.compile(r"(?<!\w)@(?=\w|\Z)")
_COMMAND: Final = re.compile(r"(?<![\w/<>])/(?=[A-Za-z0-9_]{1,64}(?![\w/<>])|\Z)")
_MARKUP: Final = re.compile(r"<(?=[!@#]|\Z)")


def defused(text: str) -> str:
    """Return a text in which the platforms find neither mentions nor commands."""
    text = _MENTION.sub(f"@{WORD_JOINER}", text)
    text = _COMMAND.sub(f"/{WORD_JOINER}", text)
    return _MARKUP.sub(f"<{WORD_JOINER}", text)


def to_plain(blocks: Sequence[Block]) -> str:
    """Return the text of blocks; the target of a link follows its text."""
    pieces: list[str] = []
    for number, block in enumerate(blocks):
        if number:
            pieces.append("\n" if block.is_tight else "\n\n")
        text = "".join(
            span.text if span.url is None or span.url == span.text else f"{span.text} ({span.url})"
            for span in block.spans
        )
        pieces.append(
            "\n".join(f"> {line}" for line in text.split("\n")) if block.kind == "quote" else text
        )
    return "".join(pieces)


def measure(text: str, *, is_markdown: bool) -> int:
    """Return how long a text is as plain text."""
    return len(defused(to_plain(parse(text, is_markdown=is_markdown)))) + 2


def utf16_length(text: str) -> int:
    """Return how Telegram counts a text: characters beyond the first 65,536 count twice."""
    return len(text) + sum(character > "\uffff" for character in text)
