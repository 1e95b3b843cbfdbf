"""A message as Slack's rich text, where text is never read as markup."""

from collections.abc import Sequence
from typing import Any, Final

from agent.channels.messages.document import Block, Span, parse

MAX_LENGTH: Final = 11_000
_LOOKS: Final = ("bold", "italic", "strike", "code")


def to_blocks(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return blocks as one block of rich text; none where there is nothing to show."""
    elements: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        spans = block.spans
        is_last = number == len(blocks) - 1
        if block.kind == "code":
            elements += _element("rich_text_preformatted", [Span(block.text)])
            continue
        if block.kind == "quote":
            elements += _element("rich_text_quote", spans)
            continue
        if not is_last:
            is_next_tight = blocks[number + 1].is_tight
            spans = (*spans, Span("\n" if is_next_tight else "\n\n"))
        elements += _element("rich_text_section", spans)
    return [{"type": "rich_text", "elements": elements}] if elements else []


def seen_length(blocks: Sequence[Block]) -> int:
    """Return how much of Slack's limit blocks take: targets of links count."""
    return sum(
        2 + sum(len(span.text) + len(span.url or "") for span in block.spans) for block in blocks
    )


def measure(text: str, *, is_markdown: bool) -> int:
    """Return how much of Slack's limit a text takes."""
    return seen_length(parse(text, is_markdown=is_markdown))


def _element(kind: str, spans: Sequence[Span]) -> list[dict[str, Any]]:
    inner = [_span(span) for span in spans if span.text]
    return [{"type": kind, "elements": inner}] if inner else []


def _span(span: Span) -> dict[str, Any]:
    element: dict[str, Any] = {"type": "text", "text": span.text}
    if span.url is not None:
        element = {"type": "link", "url": span.url, "text": span.text}
    looks = {look: True for look in _LOOKS if look in span.styles}
    return {**element, "style": looks} if looks else element
