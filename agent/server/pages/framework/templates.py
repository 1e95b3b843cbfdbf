"""The templates of pages: everything is escaped, and nothing that is shown can hide characters."""

import json
import re
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from agent.core.escape import harmless, harmless_json
from agent.server.pages.framework import assets
from agent.server.pages.framework.page_words import for_pages

_DIRECTORY: Final = Path(__file__).parents[1] / "templates"
_LOOKS: Final = re.compile(
    r"""(?P<code> ^``` (?s:.)*? ^``` .* $ | `[^`\n]+` )
    | (?P<strong> ^\#{1,6}[ ] .* $ | (?<![\w*]) \*\* [^\s*][^*\n]* \*\* (?![\w*]) )
    | (?P<em> (?<![\w*]) \* [^\s*][^*\n]* \* (?![\w*]) | (?<!\w) _ [^\s_][^_\n]* _ (?!\w) )
    | (?P<link> \bhttps?:// [^\s<>"'`()\[\]{}|\\^]+ (?<![.,;:!?*_]) )""",
    re.MULTILINE | re.VERBOSE,
)
_TAGS: Final = {
    **{tag: Markup(f"<{tag}>{{}}</{tag}>") for tag in ("code", "strong", "em")},  # noqa: S704
    "link": Markup('<a href="{0}">{0}</a>'),
}
_MOST_SHOWN: Final = 8_000
"""Characters of one value that a page shows."""


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    jinja = Environment(
        loader=FileSystemLoader(_DIRECTORY),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_shown_safely,
    )
    jinja.filters.update(
        exactly=escape,
        short=short_id,
        pretty=pretty,
        segment=lambda text: quote(str(text), safe=""),
        duration=duration,
        number=lambda value: f"{value:,}",
        dollars=dollars,
        utc=utc,
        clipped=clipped,
        first_line=first_line,
        in_one_line=in_one_line,
        one_line=one_line,
        tool_answer=tool_answer,
        pause_words=pause_words,
        for_pages=lambda text: for_pages(str(text)),
        sentence=sentence,
        with_code=with_code,
        breakable=breakable,
        headed=headed,
    )
    jinja.globals.update(asset=assets.url_of, seconds_between=seconds_between)
    return jinja


def _shown_safely(value: Any) -> Any:
    """Escape control characters in every expression of a template."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else harmless(value)


def short_id(value: str) -> str:
    """Return the end of an id, which tells those apart that were made together."""
    return value[-8:]


def pretty(value: Any) -> str:
    """Write a value for a person: text unchanged, null as nothing, everything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else harmless_json(value, indent=2)


def clipped(value: Any, most: int = _MOST_SHOWN) -> str:
    """Write a value as `pretty` does, and cut it where a page would grow too large."""
    text = pretty(value)
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… {len(text) - most:,} more characters"


def one_line(value: Any, most: int = _MOST_SHOWN) -> str:
    """Write a value as `clipped` does, without line breaks between its members."""
    return clipped(value if isinstance(value, str) else harmless_json(value), most)


def tool_answer(response: Any) -> Any:
    """Return the answer of a tool: the text that the model read, as a value where it is JSON."""
    if not isinstance(response, dict) or list(response) != ["text"]:
        return response
    text = response["text"]
    if isinstance(text, str) and text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def first_line(text: str, most: int = 200) -> str:
    """Return the first line of a text, cut to a bound."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def in_one_line(text: str, most: int = 200) -> str:
    """Return a message of several lines as one, cut to a bound."""
    return first_line(" ".join(text.split()), most)


def pause_words(reason: str) -> str:
    """Return why something is paused, without the mark of a budget, in the words of a page."""
    return for_pages(reason.removeprefix("budget: "))


def sentence(text: str) -> str:
    """Write a message of the engine as a sentence: a capital letter first, a full stop at the end."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".?!…" else ".")


def with_code(text: str) -> Markup:
    """Write a text of the engine whose parts in backticks are code."""
    parts = [escape(harmless(part)) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a quotation that never ends
        return Markup("`").join(parts)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part
        for place, part in enumerate(parts)
    )


def headed(message: str) -> tuple[Markup, Markup]:
    """Return the first line of a question's text and the rest, each as `marked` writes it."""
    head, _, body = message.replace("\r\n", "\n").strip().partition("\n")
    return marked(head), marked(body.strip("\n"))


def marked(text: str) -> Markup:
    """Write a text with the looks that its Markdown asks for, and with every one of its characters.

    What a person approves is the text: `2*3*4` and `__init__.py` must not become other words, so
    the marks stay, and a link is an address that is written out.
    """
    text = harmless(text)
    pieces: list[str] = []
    end = 0
    for found in _LOOKS.finditer(text):
        pieces += [text[end : found.start()], _TAGS[str(found.lastgroup)].format(found[0])]
        end = found.end()
    return Markup("").join([*pieces, text[end:]])


def breakable(name: str) -> Markup:
    """Write a dotted name that a narrow column may break between its words."""
    shown = str(escape(harmless(name)))
    return Markup(shown.replace(".", ".<wbr>").replace("_", "_<wbr>"))  # noqa: S704


def dollars(amount: float) -> str:
    """Write an amount of money: with two decimals, small amounts with four."""
    return f"${amount:,.2f}" if amount == 0 or abs(amount) >= 0.1 else f"${amount:,.4f}"


def utc(instant: str) -> str:
    """Write an instant exactly, for the tooltip."""
    return instant.replace("T", " ").replace("Z", " UTC")


def local(instant: str, zone: tzinfo | None) -> str:
    """Write an instant in the time of a zone, with its offset, for browsers without scripts."""
    there = datetime.fromisoformat(instant).astimezone(zone)
    offset = there.strftime("%z")
    return f"{there:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:]}"


def duration(seconds: float) -> str:
    """Write a duration in the two largest units that tell something; no line breaks inside it."""
    return _duration(seconds).replace(" ", "\N{NO-BREAK SPACE}")


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Return the seconds between two instants as documents have them."""
    if start is None or end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
