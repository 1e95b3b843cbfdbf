"""A plain text made from HTML, for mail programs that show no HTML."""

import re
from html.parser import HTMLParser
from typing import Final

_HIDDEN: Final = frozenset({"script", "style", "head", "title", "template"})
_BLOCKS: Final = frozenset(
    {"p", "div", "table", "tr", "ul", "ol", "blockquote", "pre", "section", "article", "header"}
    | {"footer", "h1", "h2", "h3", "h4", "h5", "h6", "hr"}
)
_PARAGRAPHS: Final = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "table", "pre"}
)


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0
        self._links: list[tuple[str, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden += 1
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag == "img":
            self.parts.append(dict(attrs).get("alt") or "")
        elif tag == "a":
            self._links.append((dict(attrs).get("href") or "", len(self.parts)))
        elif tag in ("td", "th"):
            self.parts.append(" ")
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag in _PARAGRAPHS else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(self._hidden - 1, 0)
        elif tag == "a" and self._links:
            address, start = self._links.pop()
            shown = "".join(self.parts[start:]).strip()
            if re.match(r"https?:|mailto:", address) and address.removeprefix("mailto:") != shown:
                self.parts.append(f" ({address})")
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag in _PARAGRAPHS else "\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def text_of(html: str) -> str:
    """Return the readable text of a page: paragraphs, lists, and links with their addresses."""
    parser = _TextParser()
    parser.feed(html)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
