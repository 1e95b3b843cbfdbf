"""The source `feed`: the entries of an RSS, Atom or JSON feed."""

from typing import Any, Final

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


def open_source(keys: dict[str, Any]) -> Source:
    """Return the feed that these keys name."""
    return FeedSource(keys)


class FeedSource:
    """A feed; its cursor has the validators of the last response and the hash of its body."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Return all entries that the feed shows, or none if it is unchanged."""
        require("feedparser", "feedparser")
        fetched = await http_poll.get(self._keys, cursor, context, accept=_ACCEPT)
        if fetched.body is None:
            return Poll(cursor=fetched.cursor, is_unchanged=True)
        options = {
            "content_type": fetched.content_type,
            "url": fetched.url,
            "most_items": context.most_items,
        }
        try:
            found = await parse_apart("feed_document", fetched.body, options, context)
        except SourceError as problem:
            raise http_poll.unreadable(self._keys["url"], fetched, problem) from None
        items = [
            Item(http_poll.redact(one["key"]), http_poll.redact_value(one["data"])) for one in found
        ]
        return Poll(
            items=items,
            cursor=fetched.cursor,
            new_baseline=http_poll.changed_definition(self._keys, cursor),
        )
