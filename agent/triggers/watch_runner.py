"""Polls due watchers, each outside of any transaction, in a thread with an event loop of its own.

A poll that hangs or blocks delays no commit. Its items are planned and recorded by `fire`, which
compares the trigger's version: of two daemons that polled the same watcher, the later one's result is
discarded. On PostgreSQL a lease keeps a second daemon from polling meanwhile, as long as its owner lives.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import structlog

from agent.core.clock import SECOND, Clock
from agent.core.ids import new_id
from agent.core.redaction import everywhere
from agent.core.state_machine import TRIGGER, TriggerStatus, moved
from agent.steps.attempt.secrets import secret_watcher
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database, StoreError
from agent.store.db.json_values import NotPlainJsonError, decode, encode
from agent.store.engine import firing_rows, trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rescue.failure_detector import has_ended
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers.kept_reader import KeptReader
from agent.triggers.run_builder import RunBuilder
from agent.triggers.schedules.passes import Fire, broken
from agent.triggers.specs import WATCH
from agent.triggers.watch_plan import SKIPPED_BY_RESUME, WatchPlanner
from agent.triggers.watchers.registry import source_of
from agent.triggers.watchers.source import Poll, PollContext, SourceError

log = structlog.get_logger(__name__)

MOST_POLLS: Final = 16
"""Polls that run at the same time."""
MOST_ITEMS: Final = 100_000
MAX_KEY_CHARS: Final = 500
MAX_ITEM_BYTES: Final = 262_144
_LEASE_EXTRA_SECONDS: Final = 30.0
_LOOK_AGAIN_SECONDS: Final = 2.0
"""How soon a watcher is looked at again that another daemon polls, or polled when it died."""


@dataclass(slots=True)
class WatchRunner:
    """Polls the watchers of one database; its methods run in the watchers' event loop."""

    database: Database
    clock: Clock
    limits: Limits
    fire: Fire
    worker_id: Callable[[], str] = str
    """The identity of the daemon's worker, by which others learn that it has died; empty without one."""
    name: str = field(default_factory=lambda: f"{socket.gethostname()}/{new_id()}")
    """The owner of leases while there is no worker."""
    resources: dict[str, Any] = field(default_factory=dict)
    on_done: Callable[[], None] | None = None
    """Called after each poll."""
    polling: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _again: set[str] = field(default_factory=set)
    """Watchers that changed while they were polled."""
    reader: KeptReader = field(init=False)
    _builder: RunBuilder = field(default_factory=lambda: RunBuilder(GraphCache()))

    def __post_init__(self) -> None:
        self.reader = KeptReader(self.database)

    async def start_due(self) -> int:
        """Start polls of due watchers, as many as may run at once; return how many."""
        room = MOST_POLLS - len(self.polling)
        if room <= 0:
            return 0
        chosen = await asyncio.to_thread(self._due, self.clock.now(), room)
        for row in chosen:
            self._start(row.id, self.poll_and_record(row))
        return len(chosen)

    def poll_soon(self, trigger_id: str) -> None:
        """Poll one watcher now, or again after the poll in progress: something has changed there."""
        if trigger_id in self.polling:
            self._again.add(trigger_id)
        else:
            self._start(trigger_id, self._poll_one(trigger_id))

    def _start(self, trigger_id: str, poll: Coroutine[Any, Any, None]) -> None:
        task = self.polling[trigger_id] = asyncio.create_task(poll)
        task.add_done_callback(partial(self._finish, trigger_id))

    def _finish(self, trigger_id: str, task: "asyncio.Task[None]") -> None:
        del self.polling[trigger_id]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("watcher.defect", trigger=trigger_id, exc_info=error)
        if trigger_id in self._again:
            self._again.discard(trigger_id)
            self.poll_soon(trigger_id)
        if self.on_done is not None:
            self.on_done()

    async def _poll_one(self, trigger_id: str) -> None:
        row = await asyncio.to_thread(self._claim, trigger_id)
        if row is not None:
            await self.poll_and_record(row)

    def _claim(self, trigger_id: str) -> TriggerRow | None:
        with self.reader.connect() as connection:
            row = trigger_rows.find(connection, trigger_id)
        if row is None or row.status != TriggerStatus.ACTIVE:
            return None
        return row if self.database.is_sqlite or self._lease(row, self.clock.now()) else None

    async def aclose(self) -> None:
        """Close the resources that polls share."""
        while self.resources:
            _, resource = self.resources.popitem()
            # Some sources share only plain values, such as the polls that still run.
            if hasattr(resource, "aclose"):
                await resource.aclose()
        self.reader.close()

    async def run_due(self) -> None:
        """Poll every due watcher and wait for the results: for tests and the simulator."""
        while await self.start_due() or self.polling:
            await asyncio.wait(list(self.polling.values()))

    def next_time(self) -> int | None:
        """Return when the next watcher is due that is not polled now.

        None while as many are polled as may be: the end of one of them, `on_done`, is the next time.
        """
        if len(self.polling) >= MOST_POLLS:
            return None
        now = self.clock.now()
        again = now + int(_LOOK_AGAIN_SECONDS * SECOND)
        times = [
            max(row.next_at or now, again) if self._is_leased(row, now) else row.next_at or now
            for row in self._next_rows(2**62)
        ]
        return min(times, default=None)

    def _next_rows(self, until: int) -> list[TriggerRow]:
        """Return the watchers that are due next, and are not polled here.

        More than one daemon polls at once: what another one polls must not hide the others.
        """
        with self.reader.connect() as connection:
            return trigger_rows.due(
                connection, WATCH, until, 2 * MOST_POLLS, left_out=list(self.polling)
            )

    def _due(self, now: int, most: int) -> list[TriggerRow]:
        rows = self._next_rows(now)
        if self.database.is_sqlite:
            return rows[:most]
        return list(islice((row for row in rows if self._lease(row, now)), most))

    def _is_leased(self, row: TriggerRow, now: int) -> bool:
        return (
            row.owner not in (None, self._owner)
            and row.owned_until is not None
            and row.owned_until >= now
        )

    @property
    def _owner(self) -> str:
        return self.worker_id() or self.name

    def _lease(self, row: TriggerRow, now: int) -> bool:
        timeout = decode(row.spec).get("timeout_seconds", 60.0)
        until = now + int((timeout + _LEASE_EXTRA_SECONDS) * SECOND)
        ended = None
        if self._is_leased(row, now):
            assert row.owner is not None
            with self.reader.connect() as connection:
                ended = row.owner if has_ended(connection, row.owner) else None
        with self.database.connect("writer") as tx, tx.transaction():
            return trigger_rows.lease(tx, row.id, row.version, self._owner, now, until, ended)

    async def poll_and_record(self, row: TriggerRow) -> None:
        """Poll one watcher and record its items, or its failure."""
        try:
            update = await self._planned(row)
            result = await self.fire(update)
        except StoreError as error:
            # It stays due: the next round polls again.
            log.warning("watcher.not_recorded", trigger=row.id, error=error.message)
            await asyncio.sleep(1.0)
            return
        _log(row, update, result)

    async def _planned(self, row: TriggerRow) -> TriggerUpdate:
        if row.status == TriggerStatus.PAUSED:
            return await asyncio.to_thread(self._plan_resume, row)
        try:
            poll = await self.poll(row)
        except SourceError as error:
            text, retry_seconds = everywhere.redact(str(error)), error.retry_seconds
            return await asyncio.to_thread(self._plan_failure, row, text, retry_seconds)
        except KeyError as error:
            return broken(row, error)
        return await asyncio.to_thread(self._plan, row, poll)

    async def poll(self, row: TriggerRow, *, is_first: bool = False) -> Poll:
        """Poll one watcher; raise `SourceError` for everything that goes wrong with its source.

        `is_first` polls without the cursor, as the first poll does.
        """
        spec = decode(row.spec)
        context = await asyncio.to_thread(self.context_of, row, spec)
        stored = None if is_first else await asyncio.to_thread(self._cursor, row.id)
        cursor = decode(stored)
        # The items of a poll may contain any secret of this process.
        await secret_watcher.read_unread()
        try:
            async with asyncio.timeout(context.timeout_seconds):
                poll = await source_of(spec).poll(cursor, context)
        except TimeoutError:
            seconds = context.timeout_seconds
            raise SourceError(f"the poll took longer than its timeout of {seconds:g} s") from None
        except (SourceError, KeyError):
            raise
        except Exception as error:
            log.exception("watcher.unexpected", trigger=row.id)
            raise SourceError(f"{type(error).__name__}: {error}") from error
        check_poll(poll)
        return poll

    def context_of(self, row: TriggerRow, spec: dict[str, Any]) -> PollContext:
        """Return the context of a watcher's poll."""
        with self.reader.connect() as connection:
            path = GraphCache().path(connection, row.workflow, row.workflow_version)
        return PollContext(
            self.clock,
            self.limits,
            spec.get("timeout_seconds", 60.0),
            None if path is None else Path(path),
            MOST_ITEMS,
            self.resources,
        )

    def _cursor(self, trigger_id: str) -> str | None:
        with self.reader.connect() as connection:
            return trigger_rows.cursor_of(connection, trigger_id)

    def _plan(self, row: TriggerRow, poll: Poll) -> TriggerUpdate:
        with self.reader.connect() as connection:
            keys = [item.key for item in poll.items]
            known = firing_rows.known_keys(connection, row.id, keys) if keys else set()
            planner = WatchPlanner(connection, self._builder, row, self.clock.now())
            return planner.plan(poll, known)

    def _plan_failure(
        self, row: TriggerRow, error: str, retry_seconds: float | None
    ) -> TriggerUpdate:
        with self.reader.connect() as connection:
            planner = WatchPlanner(connection, self._builder, row, self.clock.now())
            return planner.plan_failure(error, retry_seconds)

    def _plan_resume(self, row: TriggerRow) -> TriggerUpdate:
        """End a pause whose time is over: the next poll follows at once."""
        now = self.clock.now()
        values = {
            "status": moved(TRIGGER, "trigger.resumed", row.status),
            "pause_reason": None,
            "paused_until": None,
            "resumed_at": now,
            "next_at": now,
            "skip_items": SKIPPED_BY_RESUME,
        }
        return TriggerUpdate(row.id, row.version, values=values)


def check_poll(poll: Poll) -> None:
    """Refuse a poll that cannot be stored; an item that is too large names itself."""
    if len(poll.items) > MOST_ITEMS:
        raise SourceError(
            f"the poll found {len(poll.items):,} items, and {MOST_ITEMS:,} are allowed"
        )
    try:
        encode(poll.cursor, "cursor")
        for item in poll.items:
            if not item.key or len(item.key) > MAX_KEY_CHARS:
                raise SourceError(f"an item's key has {len(item.key)} characters, not 1 to 500")
            size = len(encode({item.key: item.data}, "item"))
            if size > MAX_ITEM_BYTES:
                raise SourceError(f"the item {item.key!r} is larger than {MAX_ITEM_BYTES:,} bytes")
    except NotPlainJsonError as error:
        raise SourceError(f"the poll found a value that is not plain JSON: {error}") from None


def _log(row: TriggerRow, update: TriggerUpdate, result: FireResult) -> None:
    if result.started:
        log.info("watcher.fired", trigger=row.id, tasks=sorted(set(result.started.values())))
        return
    error = update.values.get("last_error")
    if error is not None and update.values.get("failures"):
        log.warning("watcher.poll_failed", trigger=row.id, error=error)
    elif error is not None and error != row.last_error:
        log.warning("watcher.passed_over", trigger=row.id, error=error)
