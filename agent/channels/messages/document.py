"""Markdown as a list of blocks of spans, which every channel's writer turns into its own form.

There is no nesting below a span: a writer opens and closes the marks of a span, so whatever the text is,
its output is balanced. Raw HTML is text. The target of a link is shown wherever its text could be
taken for another address.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from agent.channels.messages.link_targets import is_linkable, must_show
from agent.core.escape import harmless

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

Style = Literal["bold", "italic", "strike", "code"]
_STYLES: Final[dict[str, Style]] = {"strong": "bold", "em": "italic", "s": "strike"}
_BULLET: Final = "•"
_RULE: Final = "———"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text of one look."""

    text: str
    styles: frozenset[Style] = frozenset()
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, a quotation or a piece of code; items of lists are paragraphs with a marker."""

    kind: Literal["text", "quote", "code"]
    spans: tuple[Span, ...]
    language: str = ""
    is_tight: bool = False
    """Whether it follows the block before it without an empty line, as an item of a list does."""

    @property
    def text(self) -> str:
        """Its text without any look."""
        return "".join(span.text for span in self.spans)


def parse(text: str, *, is_markdown: bool = True) -> list[Block]:
    """Return the blocks of a text; hidden characters are written as escapes."""
    text = harmless(text.replace("\r\n", "\n").replace("\r", "\n"))
    if not is_markdown:
        return [Block("text", (Span(text),))] if text.strip() else []
    from markdown_it.tree import SyntaxTreeNode

    root = SyntaxTreeNode(_parser().parse(text))
    return [block for node in root.children for block in _blocks(node, 0)]


@cache
def _parser() -> "MarkdownIt":
    # Most messages are not Markdown at all in their process: imported at the first one.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    return parser.enable(["table", "strikethrough"])


def _blocks(node: "SyntaxTreeNode", depth: int) -> Iterator[Block]:
    match node.type:
        case "paragraph":
            yield _text_block(_inline(node))
        case "heading":
            yield _text_block(_styled(_inline(node), "bold"))
        case "fence" | "code_block":
            language = node.info.split()[0] if node.type == "fence" and node.info.strip() else ""
            yield Block("code", (Span(node.content.rstrip("\n")),), language)
        case "blockquote":
            yield Block("quote", tuple(_joined(_children(node, depth))))
        case "bullet_list" | "ordered_list":
            yield from _items(node, depth)
        case "table":
            yield Block("code", (Span(_table(node)),))
        case "hr":
            yield _text_block((Span(_RULE),))
        case _:
            # Unknown to this version, or raw text: shown as it was written.
            yield _text_block((Span(node.content or ""),))


def _children(node: "SyntaxTreeNode", depth: int) -> list[Block]:
    return [block for child in node.children for block in _blocks(child, depth)]


def _text_block(spans: Iterable[Span]) -> Block:
    return Block("text", tuple(spans))


def _items(node: "SyntaxTreeNode", depth: int) -> Iterator[Block]:
    number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    is_first = depth == 0
    for item in node.children:
        marker = _BULLET if number is None else f"{number}."
        number = None if number is None else number + 1
        indent = "  " * depth
        has_marker = False
        for child in item.children:
            for block in _blocks(child, depth + 1):
                is_nested = child.type in ("bullet_list", "ordered_list")
                if is_nested or block.kind == "code":
                    yield replace(block, is_tight=True)
                    continue
                prefix = "  " if has_marker else f"{marker} "
                has_marker = True
                yield Block("text", (Span(indent + prefix), *block.spans), is_tight=not is_first)
                is_first = False
        if not has_marker:
            yield Block("text", (Span(f"{indent}{marker}"),), is_tight=not is_first)
            is_first = False


def _joined(blocks: list[Block]) -> Iterator[Span]:
    for number, block in enumerate(blocks):
        if number:
            yield Span("\n")
        yield from _styled(block.spans, "code") if block.kind == "code" else block.spans


def _table(node: "SyntaxTreeNode") -> str:
    """Return a table as text in columns."""
    rows = [
        [_text_of(cell) for cell in row.children]
        for section in node.children
        for row in section.children
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=False)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
    if lines:
        lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _text_of(node: "SyntaxTreeNode") -> str:
    return "".join(span.text for span in _inline(node)).replace("\n", " ")


def _inline(node: "SyntaxTreeNode") -> tuple[Span, ...]:
    return tuple(span for child in node.children for span in _spans(child))


def _spans(node: "SyntaxTreeNode") -> Iterator[Span]:
    match node.type:
        case "inline":
            yield from _inline(node)
        case "softbreak" | "hardbreak":
            yield Span("\n")
        case "strong" | "em" | "s":
            yield from _styled(_inline(node), _STYLES[node.type])
        case "code_inline":
            yield Span(node.content, frozenset({"code"}))
        case "link":
            yield from _link(_inline(node), str(node.attrs.get("href", "")))
        case "image":
            yield from _link(_inline(node) or (Span("image"),), str(node.attrs.get("src", "")))
        case _:
            yield Span(node.content)


def _link(spans: tuple[Span, ...], target: str) -> Iterator[Span]:
    """Link a text to its target, or show the target where the text could be taken for another."""
    target = harmless(target)
    text = "".join(span.text for span in spans)
    if not is_linkable(target):
        yield from spans
        yield Span(f" ({target})" if target else "")
    elif must_show(text, target):
        yield from spans
        yield Span(" (")
        yield Span(target, url=target)
        yield Span(")")
    else:
        yield from (replace(span, url=target) for span in spans)


def _styled(spans: Iterable[Span], style: Style) -> tuple[Span, ...]:
    return tuple(replace(span, styles=span.styles | {style}) for span in spans)
