"""Watches a folder of a mailbox over IMAP: an item is a new message.

A message's key is UIDVALIDITY and UID, which together are never used again. The cursor is the highest
UID that was seen, so a poll costs as much as there are new messages, however many the folder has:

- The first poll returns the newest messages, at most 1,000, all with their headers and the 20 newest
  with their text. Older messages are below the cursor and never become items.
- Later polls return new messages, oldest first. More than one poll can take (in number, or in a
  third of its time) are left to the next one, which `next_seconds` asks for at once.
- A new UIDVALIDITY makes a new baseline: the server has numbered the messages again.

`sender` and `subject` are parts of the decoded headers, whatever their case. The server searches for
them only in the first poll: servers differ in what they find (some find whole words only), and what a
search leaves out below the cursor would be lost. The folder is opened for reading only, and messages
stay unread.

IDLE tells when to poll early. One connection serves an account: its first watched folder. A server
without IDLE, and other folders of the account, are polled only.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from agent.core.backoff import Backoff
from agent.core.redaction import everywhere
from agent.steps.mail.imap_connection import Folder, ImapConnection, MailboxError
from agent.triggers.watchers import poll_threads
from agent.triggers.watchers.mailboxes.imap_fetch import Fetched, fetch, fetch_headers, search
from agent.triggers.watchers.mailboxes.mail_message import describe
from agent.triggers.watchers.parser_process import parse_apart
from agent.triggers.watchers.source import Item, Json, Listener, Poll, PollContext, SourceError

Result = TypeVar("Result")

_CHUNK: Final = 20
"""Messages whose headers are fetched by one command, and that the first poll returns with text."""
_HEADER_CHUNK: Final = 200
_BASELINE: Final = 1_000
"""The most messages that a first poll returns: a folder may have a hundred thousand."""
_PAGE: Final = 200
"""The most new messages that a poll returns: all of them are in memory at once."""
_MESSAGE_BYTES: Final = 2_097_152
"""Of a larger message only the beginning is fetched."""
_GROUP_BYTES: Final = 4_194_304
_PAGE_BYTES: Final = 16_777_216
_MOST_NAMED: Final = 5
_SHARE_OF_TIMEOUT: Final = 0.3
"""The part of a poll's time after which it returns what it has."""
_PARSER_SHARE: Final = 0.4
"""The part of it that the parser may take; it is ended after half."""

RENEW_SECONDS: Final = 9 * 60.0
"""IDLE ends after 29 minutes at the latest; routers forget silent connections earlier."""
_LASTING_SECONDS: Final = 60.0
"""A connection that lasted this long was a good one."""


def open_source(keys: dict[str, Any]) -> "MailSource":
    """Return the source of a compiled `mail` block."""
    return MailSource(keys)


def open_listener(keys: dict[str, Any]) -> Listener | None:
    """Return what waits for new messages by IDLE, unless the block refuses it."""
    return MailListener(keys) if keys["idle"] else None


def _connection(keys: dict[str, Any], context: PollContext) -> ImapConnection:
    return ImapConnection(keys, context.limits.allow_private, context.timeout_seconds)


async def _run(
    connection: ImapConnection, function: Callable[[], Result], context: PollContext
) -> Result:
    """Run a blocking function of a connection in a thread; cancelled, abort the connection."""
    try:
        return await poll_threads.start(context, lambda: connection.session(function))
    except MailboxError as error:
        raise SourceError(str(error), retry_seconds=error.retry_seconds) from None
    finally:
        connection.abort()


class MailSource:
    """A folder of a mailbox."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._keys = keys
        self._folder: str = keys["folder"]
        self._mailbox = f"{self._folder} of {keys['user']} at {keys['host']}"
        self._filters: dict[str, str] = {
            name: keys[name] for name in ("sender", "subject") if keys.get(name)
        }

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Return the new messages, or the newest ones of a new baseline."""
        connection = _connection(self._keys, context)
        collected = await _run(
            connection, lambda: self._collect(connection, cursor, context), context
        )
        return Poll(
            await self._items(collected, connection.folder, context),
            {
                "mailbox": self._mailbox,
                "uidvalidity": connection.folder.uidvalidity,
                "uid": collected.last_uid,
            },
            new_baseline=collected.reason,
            next_seconds=0.0 if collected.has_more else None,
            passed_over=collected.passed_over,
        )

    async def _items(
        self, collected: "_Collected", folder: Folder, context: PollContext
    ) -> list[Item]:
        """Parse the messages apart from the agent: anyone can send anything."""
        if not collected.messages:
            return []
        options = {
            "folder": self._folder,
            "seconds": context.timeout_seconds * _PARSER_SHARE,
            "messages": [
                {
                    "uid": message.uid,
                    "size": message.size_bytes,
                    "has_body": message.uid in collected.with_body,
                    "length": len(message.raw),
                }
                for message in collected.messages
            ],
        }
        body = b"".join(mail.raw for mail in collected.messages)
        parsed = await parse_apart("mailboxes.mail_document", body, options, context)
        return [
            Item(f"{folder.uidvalidity}:{data['uid']}", everywhere.redact_value(data))
            for data in parsed
        ]

    def _collect(
        self, connection: ImapConnection, cursor: Json, context: PollContext
    ) -> "_Collected":
        reason = None if cursor is None else self._new_baseline(cursor, connection.folder)
        if cursor is None or reason is not None:
            return self._baseline(connection, context, reason)
        return self._new_messages(connection, int(cursor["uid"]), context)

    def _new_baseline(self, cursor: dict[str, Any], folder: Folder) -> str | None:
        """Return why the UIDs of the cursor say nothing about this folder, if so."""
        if cursor["mailbox"] != self._mailbox:
            return f"the watcher reads {self._mailbox} now, and read {cursor['mailbox']} before"
        if cursor["uidvalidity"] != folder.uidvalidity:
            return (
                f"UIDVALIDITY changed from {cursor['uidvalidity']} to {folder.uidvalidity}: the"
                f" server numbered the messages of {self._mailbox} again"
            )
        if folder.uidnext <= cursor["uid"]:
            return (
                f"the next UID of {self._mailbox} is {folder.uidnext}, after {cursor['uid']} was"
                " seen: the server went back to an older state"
            )
        return None

    def _baseline(
        self, connection: ImapConnection, context: PollContext, reason: str | None
    ) -> "_Collected":
        uids = search(connection, self._filters, min(context.most_items, _BASELINE))
        # A message that arrived since the folder was opened may be among them.
        collected = _Collected(max([connection.folder.uidnext - 1, *uids]), reason=reason)
        for start in range(0, len(uids), _HEADER_CHUNK):
            headers = fetch_headers(connection, uids[start : start + _HEADER_CHUNK])
            collected.messages += [h for h in headers if self._matches(h, collected)]
        if reason is None:
            newest = collected.messages[-_CHUNK:]
            del collected.messages[-_CHUNK:]
            for group in _groups(newest):
                collected.add(group, fetch(connection, group, _MESSAGE_BYTES))
        return collected

    def _new_messages(
        self, connection: ImapConnection, last: int, context: PollContext
    ) -> "_Collected":
        stop_at = context.clock.monotonic() + context.timeout_seconds * _SHARE_OF_TIMEOUT
        uids = search(connection, {}, None, after=last)
        page = uids[: min(context.most_items, _PAGE)]
        collected = _Collected(last, has_more=True)
        for start in range(0, len(page), _CHUNK):
            chunk = page[start : start + _CHUNK]
            headers = fetch_headers(connection, chunk)
            kept = [header for header in headers if self._matches(header, collected)]
            for group in _groups(kept):
                is_late = context.clock.monotonic() >= stop_at
                if collected.messages and (is_late or collected.size_bytes >= _PAGE_BYTES):
                    return collected
                collected.add(group, fetch(connection, group, _MESSAGE_BYTES))
                collected.last_uid = group[-1].uid
            collected.last_uid = chunk[-1]
        collected.has_more = len(page) < len(uids)
        return collected

    def _matches(self, fetched: Fetched, collected: "_Collected") -> bool:
        """Whether a message passes the filters; one whose headers cannot be read is passed over."""
        if not self._filters:
            return True
        data = describe(
            self._folder, fetched.uid, fetched.raw, size=fetched.size_bytes, has_body=False
        )
        if "error" in data:
            collected.unreadable_uids.append(fetched.uid)
            return False
        address = data["from"] or {"name": "", "address": ""}
        shown = {
            "sender": f"{address['name']} <{address['address']}>",
            "subject": data["subject"],
        }
        return all(
            " ".join(wanted.split()).casefold() in shown[name].casefold()
            for name, wanted in self._filters.items()
        )


@dataclass
class _Collected:
    """What a poll fetched: messages by UID, and where the next one goes on."""

    last_uid: int
    messages: list[Fetched] = field(default_factory=list)
    with_body: set[int] = field(default_factory=set)
    size_bytes: int = 0
    has_more: bool = False
    reason: str | None = None
    unreadable_uids: list[int] = field(default_factory=list)

    @property
    def passed_over(self) -> str | None:
        """Which messages the filters could not be applied to."""
        uids = ", ".join(map(str, self.unreadable_uids[:_MOST_NAMED]))
        more = len(self.unreadable_uids) - _MOST_NAMED
        also = f" and {more} more" if more > 0 else ""
        return f"the headers of the messages with UID {uids}{also}" if uids else None

    def add(self, headers: list[Fetched], whole: dict[int, Fetched]) -> None:
        """Add messages whose headers are known; one that is gone meanwhile has its headers only."""
        self.messages += [whole.get(header.uid, header) for header in headers]
        self.with_body |= whole.keys()
        self.size_bytes += sum(len(message.raw) for message in whole.values())


def _groups(messages: list[Fetched]) -> Iterator[list[Fetched]]:
    """Yield messages that one command fetches together without taking much memory."""
    group: list[Fetched] = []
    size_bytes = 0
    for message in messages:
        fetched_bytes = min(message.size_bytes, _MESSAGE_BYTES)
        if group and size_bytes + fetched_bytes > _GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
        group.append(message)
        size_bytes += fetched_bytes
    if group:
        yield group


@dataclass
class _Account:
    """The listeners of one account; the one that holds the lock has the connection."""

    wakes: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _Accounts:
    """All accounts that a daemon listens to, by host, port and user."""

    of: dict[tuple[str, int | None, str], _Account] = field(default_factory=dict)

    async def aclose(self) -> None:
        """Do nothing: a cancelled listener has closed its connection."""


class MailListener:
    """Waits for new messages by IDLE."""

    def __init__(self, keys: dict[str, Any], renew_seconds: float = RENEW_SECONDS) -> None:
        self._keys = keys
        self._renew_seconds = renew_seconds

    async def listen(self, context: PollContext, wake: Callable[[], None]) -> None:
        """Wake when the server reports a change; end if the server has no IDLE."""
        accounts: _Accounts = context.resources.setdefault("mail", _Accounts())
        name = (self._keys["host"], self._keys.get("port"), self._keys["user"])
        account = accounts.of.setdefault(name, _Account())
        listening = (self._keys["folder"], wake)
        account.wakes.append(listening)
        try:
            async with account.lock:
                await self._idle_until_cancelled(context, account)
        finally:
            account.wakes.remove(listening)

    async def _idle_until_cancelled(self, context: PollContext, account: _Account) -> None:
        backoff = Backoff(5.0, 900.0)
        while True:
            opened_at = context.clock.monotonic()
            retry_seconds = 0.0
            try:
                if not await self._idle(context, account):
                    return
            except SourceError as error:
                # The poll reports what is wrong; a listener only tries again.
                retry_seconds = error.retry_seconds or 0.0
            if context.clock.monotonic() - opened_at >= _LASTING_SECONDS:
                backoff.reset()
            await asyncio.sleep(max(backoff.next_seconds(), retry_seconds))

    async def _idle(self, context: PollContext, account: _Account) -> bool:
        """Wake on each change until the connection ends; return False if the server has no IDLE."""
        loop = asyncio.get_running_loop()
        connection = _connection(self._keys, context)

        def wake_all() -> None:
            for folder, wake in list(account.wakes):
                if folder == self._keys["folder"]:
                    wake()

        def idle() -> bool:
            if not connection.has_capability("IDLE"):
                return False
            manager = connection.mailbox.idle
            # What arrived before IDLE begins is not reported.
            is_change = True
            while True:
                manager.start()
                if is_change:
                    loop.call_soon_threadsafe(wake_all)
                changes = manager.poll(self._renew_seconds)
                _, late = manager.stop()
                is_change = any(_is_arrival(line) for line in (*changes, *late))

        return await _run(connection, idle, context)


def _is_arrival(line: bytes | None) -> bool:
    # Servers also send lines that only keep the connection alive.
    return line is not None and (b" EXISTS" in line or b" RECENT" in line)
