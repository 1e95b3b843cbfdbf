"""The source `url`: a page or a JSON document, or a part of it; an item is a change of its value.

A key is the number of the change and the hash of the value, so a value that changes back and forth
counts each time. `page_document` says what the value is: of whole pages, only the text counts.
"""

from typing import Any, Final

from agent.core.clock import SECOND, to_iso
from agent.store.db.json_values import NotPlainJsonError, encode
from agent.triggers.watchers import http_poll, page_document
from agent.triggers.watchers.http_poll import Fetched
from agent.triggers.watchers.parser_process import ParserTimeoutError, parse_apart
from agent.triggers.watchers.source import (
    Item,
    Json,
    Poll,
    PollContext,
    Source,
    SourceError,
    require,
)

_PARTS: Final = ("select", "attribute", "jmespath", "pattern")


def open_source(keys: dict[str, Any]) -> Source:
    """Return the page or document that these keys name."""
    return UrlSource(keys)


class UrlSource:
    """A value; its cursor has the value, its hash, and how often it has changed."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys
        self._parts: dict[str, str | None] = {name: keys.get(name) for name in _PARTS}

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Return the change since the last poll, if there is one; the first value is a change too."""
        if self._parts["select"] is not None:
            require("selectolax.lexbor", "selectolax")
        if self._parts["jmespath"] is not None:
            require("jmespath", "jmespath")
        known = cursor if isinstance(cursor, dict) and "number" in cursor else {}
        fetched = await http_poll.get(self._keys, known, context)
        if fetched.body is None:
            return Poll(cursor={**known, **fetched.cursor}, is_unchanged=True)
        value = await self._find(fetched, fetched.body, context)
        new_baseline = http_poll.changed_definition(self._keys, known)
        if value["hash"] == known.get("hash") and new_baseline is None:
            return Poll(cursor={**known, **fetched.cursor}, is_unchanged=True)
        # The first number comes from the clock: a cursor that was reset must not use a number again.
        number = known.get("number", context.clock.now() // SECOND) + 1
        data = {
            "url": http_poll.redact(http_poll.without_password(self._keys["url"])),
            "value": value["value"],
            "previous": known.get("value"),
            "is_cut": value["is_cut"],
            "changed_at": to_iso(context.clock.now()),
        }
        state = {"hash": value["hash"], "number": number, "value": value["value"]}
        return Poll(
            items=[Item(f"{number}:{value['hash']}", data)],
            cursor={**fetched.cursor, **state},
            new_baseline=new_baseline,
        )

    async def _find(self, fetched: Fetched, body: bytes, context: PollContext) -> dict[str, Any]:
        is_whole = not any(self._parts.values())
        if is_whole and page_document.is_html(body, fetched.content_type):
            require("selectolax.lexbor", "selectolax")
        options = {**self._parts, "content_type": fetched.content_type}
        try:
            found = await parse_apart("page_document", body, options, context)
            value = http_poll.redact_value(found["value"])
            encode(value, "the value")
        except ParserTimeoutError as error:
            hint = "" if self._parts["pattern"] is None else "; a simpler pattern may help"
            raise SourceError(f"{http_poll.shown(self._keys['url'])}: {error}{hint}") from None
        except (SourceError, NotPlainJsonError) as error:
            raise http_poll.unreadable(self._keys["url"], fetched, error) from None
        return {**found, "value": value}
