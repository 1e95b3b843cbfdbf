"""Reads a feed: RSS 0.9x and 2.0, RSS 1.0 (RDF), Atom and JSON Feed.

Runs in the process of `parser_child`. Markup in texts stays as it is, scripts included: what shows it
to people has to sanitize it.
"""

import calendar
import hashlib
import io
import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urljoin

from agent.triggers.watchers.parser_child import UnreadableError, clean

_TEXT_LENGTH: Final = 20_000
"""Of a summary and of a content."""
_LINE_LENGTH: Final = 2_000
"""Of titles, links, names and ids."""
_WORD_LENGTH: Final = 200
"""Of tags and types."""
_MOST_TAGS: Final = 50
_MOST_AUTHORS: Final = 20
_MOST_ENCLOSURES: Final = 10
_KEY_LENGTH: Final = 500
_JSON_FEED: Final = re.compile(r"https?://(www\.)?jsonfeed\.org/version/")
_END_OF_FEED: Final = re.compile(rb"</\s*([\w.-]+:)?(rss|feed|rdf|channel)\s*>", re.IGNORECASE)
_ENTRY: Final = re.compile(rb"<([\w.-]+:)?(item|entry)[\s>]", re.IGNORECASE)
_TAIL_BYTES: Final = 4096

_Entry = dict[str, Any]


def parse(body: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return the `entries`, oldest first, each as its `key` and its `data`, and `passed_over`.

    `options`: `content_type`, `url` (what relative links are relative to) and `most_items`.
    """
    start = body[:1000].decode("utf-8-sig", "ignore").lstrip()
    if start.startswith("{"):
        title, entries, passed_over = _json_feed(body)
    else:
        title, entries = _xml_feed(body, options)
        passed_over = None
    if len(entries) > options["most_items"]:
        raise UnreadableError(
            f"the feed has {len(entries)} entries; a poll takes at most {options['most_items']}"
        )
    items: dict[str, dict[str, Any]] = {}
    for entry in _oldest_first(entries):
        # Of entries with one key, the newest counts.
        key = _key(entry)
        items.pop(key, None)
        data = {**entry, "link": _absolute(entry["link"], options["url"]), "feed": title}
        items[key] = {"key": key, "data": data}
    return {"entries": list(items.values()), "passed_over": passed_over}


def _xml_feed(body: bytes, options: dict[str, Any]) -> tuple[str, list[_Entry]]:
    import feedparser

    # Without the address of the feed: the library would resolve ids against it, and a feed that
    # moves would show all its entries as new ones.
    headers = {"content-type": options["content_type"]}
    # A stream: bytes alone would be tried as the name of a file.
    parsed = feedparser.parse(
        io.BytesIO(body),
        response_headers=headers,
        sanitize_html=False,
        resolve_relative_uris=False,
    )
    if not parsed.get("version"):
        raise UnreadableError("is not a feed")
    if parsed.get("bozo") and not _END_OF_FEED.search(body[-_TAIL_BYTES:].replace(b"\0", b"")):
        # The library repairs what is malformed, but an entry that was cut would be recorded as it is.
        raise UnreadableError("the feed is malformed, and its end is missing")
    if parsed.get("bozo") and not parsed["entries"] and _ENTRY.search(body):
        raise UnreadableError(f"the feed is malformed: {parsed['bozo_exception']}")
    return _line(parsed["feed"].get("title")), [_xml_entry(entry) for entry in parsed["entries"]]


def _xml_entry(entry: Any) -> _Entry:
    contents = entry.get("content") or []
    # Asking for one date that is missing makes the library answer with the other, and warn.
    dates = (dict.get(entry, "published_parsed"), dict.get(entry, "updated_parsed"))
    return {
        "id": _id(entry.get("id")),
        "title": _line(entry.get("title")),
        "link": _line(entry.get("link")),
        "summary": _text(entry.get("summary")),
        "content": _text(contents[0].get("value") if contents else ""),
        "published": _instant(dates[0] or dates[1]),
        "author": _line(entry.get("author")),
        "tags": [_word(tag.get("term")) for tag in (entry.get("tags") or [])[:_MOST_TAGS]],
        "enclosures": [
            {
                "url": _line(enclosure.get("href")),
                "type": _word(enclosure.get("type")),
                "length": _word(enclosure.get("length")),
            }
            for enclosure in (entry.get("enclosures") or [])[:_MOST_ENCLOSURES]
        ],
    }


def _json_feed(body: bytes) -> tuple[str, list[_Entry], str | None]:
    """Return the title, the entries, and what is none."""
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except ValueError:
        raise UnreadableError("is neither a feed nor JSON") from None
    version = document.get("version")
    items = document.get("items")
    if not isinstance(version, str) or not _JSON_FEED.match(version):
        raise UnreadableError("is JSON, but not a JSON Feed")
    entries = [_json_entry(item) for item in _list(items) if isinstance(item, dict)]
    if not isinstance(items, list) or (items and not entries):
        raise UnreadableError("the `items` of the JSON Feed are not a list of objects")
    bad = len(items) - len(entries)
    passed_over = f"{bad} of its `items`, which are not objects" if bad else None
    return _line(document.get("title")), entries, passed_over


def _json_entry(item: dict[str, Any]) -> _Entry:
    authors = [item.get("author"), *_list(item.get("authors"))]
    names = [author.get("name") for author in authors if isinstance(author, dict)]
    attachments = [part for part in _list(item.get("attachments")) if isinstance(part, dict)]
    return {
        # Version 1.0 allows numbers.
        "id": _id(item.get("id")),
        "title": _line(item.get("title")),
        "link": _line(item.get("url") or item.get("external_url")),
        "summary": _text(item.get("summary")),
        "content": _text(item.get("content_html") or item.get("content_text")),
        "published": _iso(item.get("date_published") or item.get("date_modified")),
        "author": ", ".join(filter(None, map(_word, names[:_MOST_AUTHORS]))),
        "tags": [_word(tag) for tag in _list(item.get("tags"))[:_MOST_TAGS]],
        "enclosures": [
            {
                "url": _line(part.get("url")),
                "type": _word(part.get("mime_type")),
                "length": _word(part.get("size_in_bytes")),
            }
            for part in attachments[:_MOST_ENCLOSURES]
        ],
    }


def _key(entry: _Entry) -> str:
    text: str = entry["id"] or f"{entry['link']} {entry['title']}".strip()
    if not text:
        return _hash(json.dumps(entry, sort_keys=True))
    return text if len(text) <= _KEY_LENGTH else _hash(text)


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _oldest_first(entries: list[_Entry]) -> list[_Entry]:
    """Order entries by their dates; one without a date follows the older entry beside it."""
    dated: list[tuple[str, _Entry]] = []
    date = ""
    for entry in reversed(entries):
        date = entry["published"] or date
        dated.append((date, entry))
    return [entry for _, entry in sorted(dated, key=lambda pair: pair[0])]


def _absolute(link: str, base: str) -> str:
    with suppress(ValueError):
        return urljoin(base, link) if link else ""
    return link


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _id(value: Any) -> str:
    """Return an id that still identifies its entry when it is too long to be kept."""
    if value is None or isinstance(value, dict | list | bool):
        return ""
    text = clean(value).strip()
    return text if len(text) <= _LINE_LENGTH else _hash(text)


def _line(value: Any) -> str:
    if value is None or isinstance(value, dict | list | bool):
        return ""
    return clean(str(value).strip()[:_LINE_LENGTH])


def _word(value: Any) -> str:
    return _line(value)[:_WORD_LENGTH]


def _text(value: Any) -> str:
    return clean(value[:_TEXT_LENGTH]) if isinstance(value, str) else ""


def _instant(moment: Any) -> str | None:
    """Write the library's broken-down UTC time as ISO 8601; None if it is no time."""
    with suppress(ValueError, OverflowError, OSError, TypeError):
        return _written(datetime.fromtimestamp(calendar.timegm(moment), UTC))
    return None


def _iso(text: Any) -> str | None:
    with suppress(ValueError, OverflowError, TypeError):
        moment = datetime.fromisoformat(text)
        return _written(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
    return None


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
