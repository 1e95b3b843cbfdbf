"""Results of calls that a worker could not record before it ended: kept in a file until the next start.

Without them a person would be asked about an effect that is known to have happened.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import structlog

from agent.core.ids import content_hash, new_id
from agent.core.state_machine import CallStatus
from agent.steps.types.call_records import CallResult, Reservation, Spend
from agent.steps.types.outcome import StepError
from agent.store.db.database import Connection, Database
from agent.store.engine import reads
from agent.tasks.commit.batch import JournalEntry
from agent.tasks.rules import call_ledger, row_writer
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow, TaskRow

STEM: Final = "unsettled"
"""How the names of these files begin."""

log = structlog.get_logger(__name__)


def write_file(database: Database, entries: Iterable[JournalEntry]) -> Path | None:
    """Write the results of unrecorded journal entries to a file; return its path."""
    documents = [_document(entry, entry.result) for entry in entries if entry.result is not None]
    if not documents or database.directory is None:
        return None
    path = database.directory / f"{_prefix(database)}{new_id()}.json"
    unfinished = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:  # noqa: PTH123
            json.dump(documents, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except OSError as error:
        # The calls stay unknown in the ledger.
        log.warning("results.not_kept", calls=len(documents), error=str(error))
        with contextlib.suppress(OSError):
            unfinished.unlink()
        return None
    return path


def replay(database: Database, connection: Connection, graphs: GraphCache) -> int:
    """Record the results that earlier processes left in files; return how many calls."""
    if database.directory is None:
        return 0
    count = 0
    for path in sorted(database.directory.glob(f"{_prefix(database)}*.json")):
        try:
            documents = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            # On PostgreSQL another worker may start at the same time.
            continue
        except ValueError as error:
            log.warning("results.unreadable", file=str(path), error=str(error))
            path.rename(path.with_suffix(".unreadable"))
            continue
        is_done = True
        for document in documents:
            try:
                with connection.transaction():
                    count += _resolve(connection, graphs, document, database.clock.now())
            except UnreadableError as error:
                # Keep the file until the task can be read; recording the others again has no effect.
                log.error("task.unreadable", task=document["task_id"], error=str(error))
                is_done = False
        if is_done:
            path.unlink(missing_ok=True)
    return count


def _prefix(database: Database) -> str:
    """Return how the file names of this database begin: several may share a directory."""
    name = database.path.name if database.path else content_hash(database.url)[:12]
    return f"{STEM}-{name}-"


def _document(entry: JournalEntry, result: CallResult) -> dict[str, Any]:
    return {
        "task_id": entry.claim.task_id,
        "index": entry.claim.index,
        "parallel_index": entry.claim.parallel_index,
        "call_id": result.call_id,
        "idempotency_key": result.idempotency_key,
        "status": str(result.status),
        "response": call_ledger.response_text(result),
        "error": asdict(result.error) if result.error else None,
        "latency_ms": result.latency_ms,
        "reservation": asdict(result.reservation) if result.reservation else None,
        "spend": asdict(result.spend) if result.spend else None,
    }


def _resolve(tx: Connection, graphs: GraphCache, document: dict[str, Any], now: int) -> int:
    rows = reads.lock_tasks(tx, TASK_COLUMNS, [str(document["task_id"])], is_waiting=True)
    for values in rows:
        task = TaskRow.read(values)
        locked = LockedTask(task, graphs.get(tx, task.workflow_name, task.workflow_version), now)
        address = [task.id, document["index"], document["parallel_index"]]
        for step_values in reads.steps_at(tx, STEP_COLUMNS, [address]):
            locked.add(StepRow.read(step_values))
        response = document["response"]
        error, reservation, spend = (document.get(key) for key in ("error", "reservation", "spend"))
        locked.results.append(
            CallResult(
                call_id=str(document["call_id"]),
                idempotency_key=str(document["idempotency_key"]),
                status=CallStatus(str(document["status"])),
                response=json.loads(response) if isinstance(response, str) else None,
                error=StepError(**error) if error else None,
                latency_ms=document.get("latency_ms"),
                reservation=Reservation(**reservation) if reservation else None,
                spend=Spend(**spend) if spend else None,
            )
        )
        call_ledger.resolve(tx, [locked])
        row_writer.write(tx, [locked], now)
    return len(rows)
