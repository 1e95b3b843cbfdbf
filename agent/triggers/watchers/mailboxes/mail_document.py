"""Parses the messages of one poll. Runs in the process of `parser_child`.

Anyone can send a message that keeps the standard parser busy for minutes: parts in parts in parts, or a
header of a megabyte. Each message has its share of processor time; one that takes longer is an item
with an `error`, and the messages after it are parsed all the same.
"""

import signal
import time
from typing import Any, Final

from agent.triggers.watchers.mailboxes.mail_message import describe, unparsed

_MESSAGE_SECONDS: Final = 2.0
_LEAST_SECONDS: Final = 0.05
_SHARE: Final = 0.5
"""Of the processor time of a poll's parser: what messages may use until each gets the least."""


class _TooLongError(BaseException):
    """No `Exception`: the parser's own handlers must not catch it."""


def parse(body: bytes, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the data of each message.

    `options`: `folder`, `seconds` (processor time for all of them) and `messages`, each with its
    `uid`, `size`, `has_body` and the `length` of its part of the body.
    """
    signal.signal(signal.SIGVTALRM, _stop)
    left = options["seconds"] * _SHARE
    items: list[dict[str, Any]] = []
    start = 0
    for message in options["messages"]:
        raw = body[start : start + message["length"]]
        start += message["length"]
        started = time.process_time()
        seconds = max(min(_MESSAGE_SECONDS, left), _LEAST_SECONDS)
        items.append(_parse_one(options["folder"], raw, message, seconds))
        left -= time.process_time() - started
    return items


def _parse_one(folder: str, raw: bytes, message: dict[str, Any], seconds: float) -> dict[str, Any]:
    uid, size = message["uid"], message["size"]
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            return describe(folder, uid, raw, size=size, has_body=message["has_body"])
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    except _TooLongError:
        return unparsed(folder, uid, size, f"it takes longer than {seconds:g} s")


def _stop(*_: object) -> None:
    raise _TooLongError
