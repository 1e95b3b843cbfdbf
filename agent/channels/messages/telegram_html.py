"""A message as the HTML of Telegram's Bot API."""

import html
from collections.abc import Sequence
from typing import Final

from agent.channels.messages.document import Block, Span, parse
from agent.channels.messages.plain_text import defused, utf16_length

MAX_LENGTH: Final = 4000
"""Telegram accepts 4,096 visible characters, counted as UTF-16."""
_TAGS: Final = (("bold", "b"), ("italic", "i"), ("strike", "s"))


def to_html(blocks: Sequence[Block]) -> str:
    """Return blocks as HTML: every span is closed where it ends."""
    pieces: list[str] = []
    for number, block in enumerate(blocks):
        if number:
            pieces.append("\n" if block.is_tight else "\n\n")
        pieces.append(_block(block))
    return "".join(pieces)


def seen_length(blocks: Sequence[Block]) -> int:
    """Return how much of Telegram's limit blocks take, separators included."""
    texts = [block.text for block in blocks]
    # The marks that take mentions apart count too.
    return sum(utf16_length(defused(text)) + 2 for text in texts)


def measure(text: str, *, is_markdown: bool) -> int:
    """Return how much of Telegram's limit a text takes."""
    return seen_length(parse(text, is_markdown=is_markdown))


def _block(block: Block) -> str:
    if block.kind == "code":
        content = html.escape(block.text, quote=False)
        if block.language:
            name = html.escape(block.language)
            return f'<pre><code class="language-{name}">{content}</code></pre>'
        return f"<pre>{content}</pre>"
    content = "".join(map(_span, block.spans))
    return f"<blockquote>{content}</blockquote>" if block.kind == "quote" else content


def _span(span: Span) -> str:
    if not span.text:
        return ""
    if "code" in span.styles and span.url is None:
        # Nothing is found inside of code, and no other style may be around it.
        return f"<code>{html.escape(span.text, quote=False)}</code>"
    is_address = span.url is not None and span.url == span.text
    text = html.escape(span.text if is_address else defused(span.text), quote=False)
    for style, tag in _TAGS:
        if style in span.styles:
            text = f"<{tag}>{text}</{tag}>"
    return text if span.url is None else f'<a href="{html.escape(span.url)}">{text}</a>'
