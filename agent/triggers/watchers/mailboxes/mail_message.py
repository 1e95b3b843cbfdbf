"""A message as a mail watcher shows it: plain JSON of bounded size, whatever the sender sent.

Anyone can send anything to a mailbox. What cannot be decoded is replaced, one broken field leaves the
others, and a message that cannot be parsed at all still has its UID and an `error`.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any, Final, TypeVar

Json = Any
Value = TypeVar("Value")
Default = TypeVar("Default")

TEXT_BYTES: Final = 50_000
_ITEM_LENGTH: Final = 200_000
_FIELD_LENGTH: Final = 1_000
_ADDRESSES: Final = 100
_REFERENCES: Final = 50
_ATTACHMENTS: Final = 100
_BULK: Final = frozenset({"bulk", "list", "junk", "auto_reply"})
_unreadable: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Control characters; JSON writes six characters for each."""


def describe(folder: str, uid: int, raw: bytes, *, size: int, has_body: bool) -> dict[str, Json]:
    """Return the data of an item; `raw` may be the headers alone, or cut.

    `text` and `html` are null where only the headers were fetched. `is_complete` is false then, and
    where the message or its text is larger than was kept.
    """
    data: dict[str, Json] = {"uid": uid, "folder": folder, "size": size}
    is_cut = has_body and len(raw) < size
    if is_cut:
        # Base64 can be decoded up to the end of a line.
        raw = raw[: raw.rfind(b"\n") + 1] or raw
    try:
        message = import_module("imap_tools").MailMessage.from_bytes(raw)
        data |= _headers(message)
        data |= _body(message, is_cut=is_cut) if has_body else _NO_BODY
        return _fitting(data)
    except Exception as error:
        # The parser of the standard library fails on messages that were made to break it.
        return unparsed(folder, uid, size, f"{type(error).__name__}: {error}")


def unparsed(folder: str, uid: int, size: int, problem: str) -> dict[str, Json]:
    """Return the data of a message that cannot be parsed at all."""
    error = bounded(f"the message cannot be parsed: {problem}")
    identity = {"uid": uid, "folder": folder, "size": size}
    return identity | _NO_HEADERS | _NO_BODY | {"error": error}


def _fitting(data: dict[str, Json]) -> dict[str, Json]:
    """Return the data without what makes it too large for an item: many fields at their limits."""
    for smaller in (
        {"html": None},
        {name: data[name][:10] for name in ("reply_to", "to", "cc", "references", "attachments")},
        {"text": data["text"] and bounded(data["text"], 10_000)},
    ):
        if len(json.dumps(data, ensure_ascii=False)) <= _ITEM_LENGTH:
            break
        data = {**data, **smaller, "is_complete": False}
    return data


def bounded(value: object, most_bytes: int = _FIELD_LENGTH) -> str:
    """Return a text that both databases store, at most this long in UTF-8."""
    text = _unreadable.sub("\ufffd", str(value)[:most_bytes])
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


_NO_HEADERS: Final[dict[str, Json]] = {
    "message_id": None,
    "subject": "",
    "from": None,
    "reply_to": [],
    "to": [],
    "cc": [],
    "date": None,
    "in_reply_to": None,
    "references": [],
    "is_automatic": False,
}
_NO_BODY: Final[dict[str, Json]] = {
    "text": None,
    "html": None,
    "attachments": [],
    "is_complete": False,
}


def _headers(message: Any) -> dict[str, Json]:
    source: Message = message.obj
    references = _ids(source, "References")
    return {
        "message_id": next(iter(_ids(source, "Message-ID")), None),
        "subject": _read(lambda: _one_line(message.subject), ""),
        "from": _read(lambda: _address(message.from_values), None),
        "reply_to": _read(lambda: _addresses(message.reply_to_values), []),
        "to": _read(lambda: _addresses(message.to_values), []),
        "cc": _read(lambda: _addresses(message.cc_values), []),
        "date": _read(lambda: _date(source), None),
        "in_reply_to": next(iter(_ids(source, "In-Reply-To")), None),
        # The first message of a thread, and the nearest ones.
        "references": references
        if len(references) <= _REFERENCES
        else references[:1] + references[1 - _REFERENCES :],
        "is_automatic": _read(lambda: _is_automatic(source), False),
    }


def _is_automatic(source: Message) -> bool:
    """Whether a program sent it, or a list: an answer to such a message may never end."""
    submitted = str(source.get("Auto-Submitted", "no")).partition(";")[0].strip().lower()
    precedence = str(source.get("Precedence", "")).strip().lower()
    return submitted != "no" or precedence in _BULK or "List-Id" in source


def _body(message: Any, *, is_cut: bool) -> dict[str, Json]:
    text: str = _read(lambda: message.text.replace("\r\n", "\n"), "")
    html: str = _read(lambda: message.html.replace("\r\n", "\n"), "")
    attachments: list[dict[str, Json]] = _read(
        lambda: [_attachment(part) for part in message.attachments], []
    )
    if is_cut and attachments:
        attachments[-1]["size"] = None
    is_whole = len(text) <= TEXT_BYTES and len(html) <= TEXT_BYTES
    return {
        "text": bounded(text, TEXT_BYTES),
        "html": bounded(html, TEXT_BYTES) if html else None,
        "attachments": attachments[:_ATTACHMENTS],
        "is_complete": is_whole and not is_cut,
    }


def _read(read: Callable[[], Value], default: Default) -> Value | Default:
    try:
        return read()
    except Exception:
        # A header or a part that breaks the parser leaves the others readable.
        return default


def _one_line(value: str) -> str:
    return bounded(" ".join(value.split()))


def _ids(source: Message, header: str) -> list[str]:
    text = _read(lambda: str(source.get(header, "")), "")
    return [bounded(word) for word in text.split()]


def _address(address: Any) -> dict[str, str] | None:
    if address is None:
        return None
    return {"name": _one_line(address.name), "address": _one_line(address.email)}


def _addresses(addresses: Any) -> list[dict[str, str]]:
    return [address for address in map(_address, addresses[:_ADDRESSES]) if address is not None]


def _date(source: Message) -> str | None:
    moment: datetime = parsedate_to_datetime(str(source["Date"]))
    # The zone "-0000" says that the sender's zone is unknown; the time is in UTC.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _attachment(attachment: Any) -> dict[str, Json]:
    return {
        "name": _read(lambda: _one_line(attachment.filename), ""),
        "type": _read(lambda: bounded(attachment.content_type), "application/octet-stream"),
        "size": _read(lambda: len(attachment.payload), None),
    }
