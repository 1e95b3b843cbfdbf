"""Searching a folder and fetching messages from it, without marking them as read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.steps.mail.imap_connection import ImapConnection, require_imap_tools
from agent.triggers.watchers.source import SourceError

_HEADER_BYTES: Final = 16_384
"""Of the headers alone; a whole message has all of them."""
_HEADERS: Final = (
    "MESSAGE-ID SUBJECT FROM REPLY-TO TO CC DATE IN-REPLY-TO REFERENCES"
    " AUTO-SUBMITTED PRECEDENCE LIST-ID"
)
_IMAP_KEYS: Final = {"sender": "from_", "subject": "subject"}

_start = re.compile(rb"^\d+ \(")
# A server may send a megabyte of anything as one line: each pattern takes linear time.
_quoted = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
_inline_body = re.compile(rb'BODY\[[^\[\]]*\](?:<\d{1,10}>)? "((?:[^"\\]|\\.)*+)"')
_body = re.compile(rb"BODY\[[^\[\]]*\](?:<\d{1,10}>)? \{\d{1,10}\}$")


@dataclass(frozen=True, slots=True)
class Fetched:
    """A message, or its headers, as the server sent them."""

    uid: int
    size_bytes: int
    """Of the whole message."""
    raw: bytes


def search(
    connection: ImapConnection, filters: dict[str, str], most: int | None, after: int | None = None
) -> list[int]:
    """Return the newest UIDs that match, ascending: all after a UID, or at most `most`."""
    count = connection.folder.message_count
    if after is not None:
        # `*` is the highest UID, so the newest message always matches.
        return [uid for uid in _uids(connection, f"UID {after + 1}:*") if uid > after]
    assert most is not None
    if count == 0:
        return []
    if filters:
        uids = _search_by_headers(connection, filters)
        if uids is not None:
            return uids[-most:]
    return _uids(connection, f"{max(count - most + 1, 1)}:*")[-most:]


def _search_by_headers(connection: ImapConnection, filters: dict[str, str]) -> list[int] | None:
    """Let the server search; None when it cannot, as with characters that it does not know."""
    imap_tools = require_imap_tools()
    values = {_IMAP_KEYS[name]: " ".join(value.split()) for name, value in filters.items()}
    criteria = str(imap_tools.AND(**values))
    try:
        return _uids(connection, criteria, None if criteria.isascii() else "UTF-8")
    except (imap_tools.ImapToolsError, connection.mailbox.client.error) as error:
        if isinstance(error, connection.mailbox.client.abort):
            raise
        return None


def _uids(connection: ImapConnection, criteria: str, charset: str | None = None) -> list[int]:
    encoded = criteria.encode("utf-8")
    return sorted(map(int, connection.mailbox.uids(encoded, charset=charset)))


def fetch_headers(connection: ImapConnection, uids: list[int]) -> list[Fetched]:
    """Return the headers of messages, ascending by UID; messages that are gone are left out."""
    fetched = _fetch(connection, uids, f"HEADER.FIELDS ({_HEADERS})", _HEADER_BYTES)
    return [fetched[uid] for uid in uids if uid in fetched]


def fetch(
    connection: ImapConnection, headers: list[Fetched], most_bytes: int
) -> dict[int, Fetched]:
    """Return the messages by UID, each up to a size; messages that are gone are left out."""
    return _fetch(connection, [header.uid for header in headers], "", most_bytes)


def _fetch(
    connection: ImapConnection, uids: list[int], section: str, most_bytes: int
) -> dict[int, Fetched]:
    if not uids:
        return {}
    client = connection.mailbox.client
    wanted = f"(UID RFC822.SIZE BODY.PEEK[{section}]<0.{most_bytes}>)"
    status, lines = client.uid("FETCH", ",".join(map(str, uids)), wanted)
    if status != "OK":
        text = next((line for line in lines if isinstance(line, bytes)), b"")
        raise SourceError(
            f"{connection.host} refused to fetch messages: {text.decode('utf-8', 'replace')[:300]}"
        )
    known = set(uids)
    return {
        message.uid: replace(message, raw=message.raw[:most_bytes])
        for message in read_responses(lines)
        if message.uid in known
    }


def read_responses(lines: list[Any]) -> list[Fetched]:
    """Return the messages of an answer to FETCH, as the standard client returns it."""
    fetched = (_fetched(response) for response in _responses(lines))
    return [message for message in fetched if message is not None]


def _responses(lines: list[Any]) -> Iterator[list[Any]]:
    """Yield the parts of one FETCH response after another: texts, and texts with a literal."""
    response: list[Any] = []
    for part in lines:
        head = part[0] if isinstance(part, tuple) else part
        if head is None:
            continue
        if _start.match(head) and response:
            yield response
            response = []
        response.append(part)
    if response:
        yield response


def _fetched(response: list[Any]) -> Fetched | None:
    """Return a message of one response; None for one that only reports flags."""
    raw: bytes | None = None
    texts: list[bytes] = []
    for part in response:
        text = part[0] if isinstance(part, tuple) else part
        if isinstance(part, tuple) and _body.search(text):
            raw = part[1]
        elif inline := _inline_body.search(text):
            raw = re.sub(rb"\\(.)", rb"\1", inline[1])
        # A quoted value may be a part of the message, and say anything.
        texts.append(_quoted.sub(b'""', text))
    described = b" ".join(texts)
    uid = re.search(rb"\bUID (\d{1,10})\b", described)
    size = re.search(rb"\bRFC822\.SIZE (\d{1,18})\b", described)
    if uid is None or (raw is None and size is None):
        return None
    raw = raw or b""
    return Fetched(int(uid[1]), int(size[1]) if size else len(raw), raw)
