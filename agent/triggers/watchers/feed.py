"""The source `feed`: the entries of an RSS, Atom or JSON feed."""

from typing import Any, Final

from agent.core.clock import SECOND
from agent.triggers.watchers import http_poll
from agent.triggers.watchers.parser_process import parse_apart
from agent.triggers.watchers.source import (
    Item,
    Json,
    Poll,
    PollContext,
    Source,
    SourceError,
    require,
)

_ACCEPT: Final = (
    "application/atom+xml, application/rss+xml, application/rdf+xml, application/feed+json,"
    " application/xml;q=0.9, text/xml;q=0.9, application/json;q=0.8, */*;q=0.5"
)

_DAY_US: Final = 86_400 * SECOND


def open_source(keys: dict[str, Any]) -> Source:
    """Return the feed that these keys name."""
    return FeedSource(keys)


class FeedSource:
    """A feed; its cursor has the validators of the last response and the hash of its body.

    The first poll of a day reads the feed whole: some servers answer 304 although it has changed.
    """

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Return all entries that the feed shows, or none if it is unchanged."""
        require("feedparser", "feedparser")
        today = context.clock.now() // _DAY_US
        is_read_today = isinstance(cursor, dict) and cursor.get("read_on_day") == today
        known = cursor if is_read_today else None
        fetched = await http_poll.get(self._keys, known, context, accept=_ACCEPT)
        new_cursor = {**fetched.cursor, "read_on_day": today}
        if fetched.body is None:
            return Poll(cursor=new_cursor, is_unchanged=True)
        options = {
            "content_type": fetched.content_type,
            "url": fetched.url,
            "most_items": context.most_items,
        }
        try:
            parsed = await parse_apart("feed_document", fetched.body, options, context)
        except SourceError as error:
            raise http_poll.unreadable(self._keys["url"], fetched, error) from None
        items = [
            Item(http_poll.redact(one["key"]), http_poll.redact_value(one["data"]))
            for one in parsed["entries"]
        ]
        return Poll(
            items=items,
            cursor=new_cursor,
            new_baseline=http_poll.changed_definition(self._keys, cursor),
            passed_over=parsed["passed_over"],
        )
