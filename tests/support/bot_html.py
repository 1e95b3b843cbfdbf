"""The HTML of Telegram's Bot API, read as strictly as Telegram does."""

from html.parser import HTMLParser

_ALLOWED = {
    "b": set(),
    "i": set(),
    "s": set(),
    "u": set(),
    "code": {"class"},
    "pre": set(),
    "blockquote": set(),
    "a": {"href"},
}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.links: list[tuple[str, str]] = []
        """The targets of links with the texts that show them."""
        self.code = ""
        """The part of the text that is code."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in _ALLOWED or {name for name, _ in attributes} - _ALLOWED[tag]:
            raise ValueError(f"Unsupported start tag {tag!r}")
        if {"code", "pre"} & set(self.open) and (tag, self.open[-1:]) != ("code", ["pre"]):
            raise ValueError(f"{tag!r} inside of code")
        if tag == "a":
            self.links.append((dict(attributes)["href"] or "", ""))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"Unmatched end tag {tag!r}")

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"code", "pre"} & set(self.open):
            self.code += data
        if "a" in self.open:
            target, shown = self.links[-1]
            self.links[-1] = (target, shown + data)

    def handle_comment(self, data: str) -> None:
        raise ValueError("a comment")

    def handle_decl(self, decl: str) -> None:
        raise ValueError("a declaration")

    def handle_pi(self, data: str) -> None:
        raise ValueError("an instruction")


def read_html(text: str) -> _Reader:
    """Return what is seen of an HTML text; raise `ValueError` if Telegram would refuse it."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    if reader.open:
        raise ValueError(f"Can't find end tag corresponding to {reader.open[-1]!r}")
    return reader


def visible_text(text: str) -> str:
    """Return the text that a person sees, without the marks that take mentions apart."""
    return read_html(text).text.replace("\u2060", "")
