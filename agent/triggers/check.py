"""Polls a watcher once and returns the fates its items would have; it records and starts nothing."""

import asyncio
from dataclasses import replace
from typing import Any

from agent.core.clock import Clock
from agent.core.redaction import everywhere
from agent.core.state_machine import TriggerStatus
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database
from agent.store.db.json_values import decode
from agent.store.engine import firing_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import RefusedError
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers import documents
from agent.triggers.run_builder import RunBuilder
from agent.triggers.specs import WATCH
from agent.triggers.watch_plan import SKIPPED_BY_RESUME, WatchPlanner
from agent.triggers.watch_runner import WatchRunner
from agent.triggers.watchers.registry import source_name
from agent.triggers.watchers.source import Item, Poll, SourceError

Json = Any


def check_watcher(
    database: Database, clock: Clock, limits: Limits, trigger_id: str
) -> dict[str, Json]:
    """Poll a watcher in an event loop of its own and return the runs it would start.

    Its `sample` is the newest item that the source has, also where nothing is new: what a template can
    use. Raises `RefusedError` with the reason if the poll fails.
    """
    with database.connect("reader") as connection:
        row = documents.find_row(connection, trigger_id)
    if row.kind != WATCH:
        raise RefusedError("it is a schedule, and only a watcher can be polled")
    if row.status == TriggerStatus.REMOVED:
        raise RefusedError(f"{row.id} was removed from its workflow {row.workflow!r}")
    poll, sample = asyncio.run(_poll(WatchRunner(database, clock, limits, _refuse), row))
    with database.connect("reader") as connection:
        keys = [item.key for item in poll.items]
        known = firing_rows.known_keys(connection, row.id, keys) if keys else set()
        planner = WatchPlanner(connection, RunBuilder(GraphCache()), _next(row), clock.now())
        update = planner.plan(poll, known)
    return {
        "id": row.id,
        "source": source_name(decode(row.spec)),
        "found": len(poll.items),
        "known": len(known),
        "status": row.status,
        "is_first": row.polls == 0,
        "would": _fates(poll, update, clock.now()),
        "passed_over": poll.passed_over,
        "sample": None if sample is None else {"key": sample.key, "item": sample.data},
    }


def _next(row: TriggerRow) -> TriggerRow:
    """Return a watcher as its next poll finds it: the one after a pause skips what it finds."""
    is_paused = row.status == TriggerStatus.PAUSED
    return replace(row, skip_items=SKIPPED_BY_RESUME) if is_paused else row


async def _poll(runner: WatchRunner, row: TriggerRow) -> tuple[Poll, Item | None]:
    try:
        poll = await runner.poll(row)
        items = poll.items or await _all_items(runner, row)
        return poll, items[-1] if items else None
    except SourceError as error:
        raise RefusedError(f"the poll failed: {everywhere.redact(str(error))}") from None
    except KeyError as error:
        raise RefusedError(f"its definition cannot be read: {error}") from None
    finally:
        await runner.aclose()


async def _all_items(runner: WatchRunner, row: TriggerRow) -> list[Item]:
    """Return what a first poll finds: later ones leave out what has not changed."""
    if row.polls == 0:
        return []
    try:
        return (await runner.poll(row, is_first=True)).items
    except (SourceError, KeyError):
        # The poll that counts has succeeded.
        return []


async def _refuse(update: TriggerUpdate) -> FireResult:
    raise AssertionError(f"a check records nothing for {update.trigger_id}")


def _fates(poll: Poll, update: TriggerUpdate, now: int) -> list[dict[str, Json]]:
    """Return the fate that each new item would have, in the order of the poll."""
    fates: dict[str, tuple[str, str | None]] = {
        mark.key: (str(mark.status), mark.reason) for mark in update.marks
    }
    for run in update.runs:
        fate = "queued" if run.due_at > now else "started"
        fates |= {key: (fate, run.reason) for key, _ in run.keys}
    data = {item.key: item.data for item in poll.items}
    return [
        {"key": key, "fate": fates[key][0], "reason": fates[key][1], "item": data[key]}
        for key in data
        if key in fates
    ]
