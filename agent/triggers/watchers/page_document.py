"""Finds the watched value in a page or a JSON document.

Runs in the process of `parser_child`. The value is one of these, and `pattern` finds its part of it:

- with `jmespath`: the result, of its JSON type;
- with `select`: the texts of the selected elements, or their `attribute`, a line each;
- else the whole document. JSON has its type, HTML is the text that a reader sees: without markup,
  scripts and styles, so that a nonce in the markup is no change. With `pattern` it is the source text,
  as it came.
"""

import codecs
import hashlib
import json
import re
from contextlib import suppress
from typing import Any, Final

from agent.triggers.watchers.parser_child import UnreadableError, clean

VALUE_LENGTH: Final = 65_536
"""Of a value, as ASCII JSON; a longer one is recorded as the beginning of its text."""

_UNSEEN: Final = ("script", "style", "noscript", "template")
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_charset = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_declaration = re.compile(
    r"<(?:meta\b[^>]*?charset|\?xml\b[^>]*?encoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE
)
_html = re.compile(r"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_START_LENGTH: Final = 1024


def parse(body: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return the `value` (bounded), its `hash` and whether it `is_cut`.

    `options`: `content_type`, and `select`, `attribute`, `jmespath` and `pattern` or None.
    """
    value = _value(body, options)
    written = json.dumps(value, sort_keys=True, allow_nan=False)
    is_cut = len(written) > VALUE_LENGTH
    if is_cut:
        value = _cut(value if isinstance(value, str) else written)
    return {"value": value, "hash": hashlib.sha256(written.encode()).hexdigest(), "is_cut": is_cut}


def _cut(text: str) -> str:
    """Return the beginning of a text that fits, with what JSON adds to quotes and line ends."""
    text = text[: VALUE_LENGTH - 2]
    while len(json.dumps(text)) > VALUE_LENGTH:
        text = text[: len(text) * 3 // 4]
    return text


def is_html(body: bytes, content_type: str) -> bool:
    """Whether a document is an HTML page, by its type, or by its start if it has none."""
    media = content_type.partition(";")[0].strip().lower()
    if media:
        return media in ("text/html", "application/xhtml+xml")
    return _html.match(body[:_START_LENGTH].decode("latin-1")) is not None


def _value(body: bytes, options: dict[str, Any]) -> Any:
    if options["jmespath"] is not None:
        value = _searched(_json(_decoded(body, options)), options["jmespath"])
    elif options["select"] is not None:
        value = _selected(_decoded(body, options), options["select"], options["attribute"])
    elif options["pattern"] is not None:
        value = _decoded(body, options)
    else:
        return _whole(body, options)
    if options["pattern"] is None:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _matched(text, options["pattern"])


def _whole(body: bytes, options: dict[str, Any]) -> Any:
    media = options["content_type"].partition(";")[0].strip().lower()
    if is_html(body, options["content_type"]):
        text = _seen_text(_decoded(body, options))
        if not text:
            raise UnreadableError(
                "the page has no text without its scripts; watch a part of it with `select` or"
                " `pattern`, or the address that its scripts read"
            )
        return text
    if not _is_text(body, media):
        return {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    text = _decoded(body, options)
    if media.endswith(("/json", "+json")):
        with suppress(UnreadableError):
            return _json(text)
    return text.replace("\r\n", "\n").strip()


def _seen_text(source: str) -> str:
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(source)
    tree.strip_tags(list(_UNSEEN))
    root = tree.root
    lines = root.text(separator="\n").split("\n") if root is not None else []
    return "\n".join(filter(None, (" ".join(line.split()) for line in lines)))


def _selected(source: str, selector: str, attribute: str | None) -> str:
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    try:
        nodes = LexborHTMLParser(source).css(selector)
    except SelectolaxError:
        raise UnreadableError(f"select: {selector!r} is not a CSS selector") from None
    if not nodes:
        raise UnreadableError(f"nothing on the page matches select: {selector!r}")
    if attribute is not None:
        values = [node.attributes[attribute] for node in nodes if attribute in node.attributes]
        if not values:
            raise UnreadableError(
                f"no element that matches select: {selector!r} has the attribute {attribute!r}"
            )
        return "\n".join(clean(value or "") for value in values)
    # Removing the scripts in one element may remove another selected one.
    scripts = {place: node.text() for place, node in enumerate(nodes) if node.tag in _UNSEEN}
    texts = []
    for place, node in enumerate(nodes):
        if place not in scripts:
            node.strip_tags(list(_UNSEEN))
        text = scripts.get(place) or node.text()
        texts.append(" ".join(clean(text).split()))
    return "\n".join(texts)


def _searched(document: Any, expression: str) -> Any:
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        value = jmespath.search(expression, document)
    except JMESPathError as error:
        raise UnreadableError(f"jmespath: {expression!r}: {error}") from None
    if value is None:
        raise UnreadableError(f"nothing in the document matches jmespath: {expression!r}")
    return value


def _matched(text: str, pattern: str) -> str:
    try:
        match = re.search(pattern, text)
    except (re.error, OverflowError) as error:
        raise UnreadableError(
            f"pattern: {pattern!r} is not a regular expression: {error}"
        ) from None
    if match is None:
        raise UnreadableError(f"nothing on the page matches pattern: {pattern!r}")
    group = match[1] if match.re.groups else None
    return match[0] if group is None else group


def _json(text: str) -> Any:
    try:
        return _cleaned(json.loads(text, parse_constant=_refuse))
    except ValueError as error:
        raise UnreadableError(f"the document is not JSON: {error}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    if isinstance(value, list):
        return [_cleaned(member) for member in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(member) for key, member in value.items()}
    return value


def _decoded(body: bytes, options: dict[str, Any]) -> str:
    """Decode by mark, header or declaration; else as UTF-8, or as Windows-1252 if it is not."""
    marked = [name for mark, name in _MARKS if body.startswith(mark)]
    in_header = _charset.search(options["content_type"])
    in_body = _declaration.search(body[:_START_LENGTH].decode("latin-1"))
    declared = [] if in_header is None else [in_header[1]]
    # Readable as it is, the declaration is not in UTF-16, whatever it says.
    if in_body is not None and not in_body[1].lower().startswith(("utf-16", "utf-32", "ucs")):
        declared.append(in_body[1])
    for name in (*marked, *declared):
        with suppress(LookupError, ValueError):
            if codecs.lookup(name)._is_text_encoding:
                return clean(body.decode(name, "replace").removeprefix("\ufeff"))
    try:
        return clean(body.decode("utf-8"))
    except UnicodeDecodeError:
        return clean(body.decode("cp1252", "replace"))


def _is_text(body: bytes, media: str) -> bool:
    if media.startswith("text/") or media.endswith(("json", "xml", "javascript", "yaml")):
        return True
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False
