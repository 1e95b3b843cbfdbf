"""One turn: a single transaction that settles, records, creates and claims.

It opens with the worker's fence and everything that can be asked for before anything is known, in
one round trip; it ends with all writes and the COMMIT in another. A turn never waits for a task that
another transaction holds: what it could not lock it hands back, to be carried into the next.
"""

from typing import Any

from agent.core.state_machine import TASK_ENDED, StepStatus, TaskStatus
from agent.core.waits import Approval, Child, Timer, UnknownCall
from agent.steps.types.outcome import Retry
from agent.store.db.database import Connection, Later
from agent.store.engine import begin_tx, reads, workflow_versions, writes
from agent.tasks.commit.batch import Batch, Completion, JournalEntry, TxResult
from agent.tasks.commit.task_cache import TaskCache
from agent.tasks.rules import (
    advance,
    approvals,
    budgets,
    child_tasks,
    claiming,
    creation,
    fanout,
    row_writer,
    settlement,
)
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import STEP_COLUMNS, TASK_COLUMNS, StepRow, TaskRow

MAX_DUE_TASKS = 64
LOCK_TIMEOUT_MS = 200


class FencedError(Exception):
    """The worker was declared dead: its claims are others' now, and it must begin anew."""


def run(
    tx: Connection,
    batch: Batch,
    room: ClaimCapacity,
    graphs: GraphCache,
    cache: TaskCache,
    now: int,
) -> TxResult:
    """Run one turn in an open transaction; the caller commits."""
    turned = TxResult()
    cache.open(tx)
    locked_tasks = _open(tx, batch, room, graphs, cache, now, turned)
    _apply(tx, batch, room, graphs, locked_tasks, turned)
    row_writer.resolve(tx, locked_tasks.values())
    for locked in locked_tasks.values():
        advance.advance(tx, locked)
    new = _create(tx, batch, graphs, cache, now, turned, locked_tasks, room)
    everyone = [*locked_tasks.values(), *new]
    claims = claiming.claim(everyone, room)
    turned.claimed = claims.steps
    turned.is_draining, turned.is_alone = claims.is_draining, claims.is_alone
    # With no slot left there is nothing to look for: the next outcome brings the next turn.
    has_room = len(claims.steps) < room.slots and not claims.is_draining
    turned.has_more = turned.has_more and has_room and len(claims.steps) > 0
    # Only for what this turn has made due: workers without a slot would wake each other for ever
    # over what each of them finds due anyway.
    if claims.left_over > 0 and len(claims.steps) >= room.slots and not batch.is_empty:
        tx.notify()
    row_writer.write(tx, everyone, now)
    if batch.logs:
        writes.insert_logs(tx, batch.logs)
    turned.soonest = cache.close(tx, everyone)
    turned.locked_tasks = everyone
    for locked in everyone:
        _report(locked, turned)
    return turned


def _open(
    tx: Connection,
    batch: Batch,
    room: ClaimCapacity,
    graphs: GraphCache,
    cache: TaskCache,
    now: int,
    turned: TxResult,
) -> dict[str, LockedTask]:
    """Take the fence, lock what outcomes and notes are about, find what is due, read it all."""
    all_places = _places(batch)
    task_ids = {place[0] for place in all_places} | {end.parent_task_id for end in batch.child_ends}
    locked_tasks = cache.take(sorted(task_ids), now)
    places = [
        p for p in all_places if p[0] not in locked_tasks or not locked_tasks[p[0]].has(p[1:])
    ]
    most = min(MAX_DUE_TASKS, room.most_due)
    if not room.must_look and not cache.is_anything_due(now):
        most = 0
    if tx.can_assume:
        if len(locked_tasks) == len(task_ids) and not (places or most or batch.must_wait):
            known = [(task_id, locked.version) for task_id, locked in locked_tasks.items()]
            turned.transaction = begin_tx.assume(tx, room.worker_id, room.turn, known)
            turned.is_assumed = True
            return locked_tasks
        # To read a part would take as many round trips as to read it all.
        locked_tasks, places = {}, all_places
    if most:
        cache.look()
    if batch.must_wait:
        tx.lock_timeout(LOCK_TIMEOUT_MS)
    opened = begin_tx.open_turn(
        tx,
        room.worker_id,
        room.turn,
        (TASK_COLUMNS, sorted(task_ids - locked_tasks.keys())),
        (STEP_COLUMNS, places),
        (now, most and most + len(room.passed_over)),
        is_waiting=batch.must_wait,
    )
    if not opened.fence:
        raise FencedError(room.worker_id)
    turned.transaction = Later(opened.fence)
    for values in opened.tasks:
        _add_unit(tx, locked_tasks, values, graphs, now)
    for values in opened.steps:
        locked = locked_tasks.get(values[1])
        if locked is not None:
            locked.add(StepRow.read(values))
    turned.gone = _gone(tx, task_ids - locked_tasks.keys())
    due = [row[0] for row in opened.due if row[0] not in room.passed_over]
    turned.has_more = len(due) >= most > 0
    if due:
        # A task of the batch that somebody else held was read without its lock: it is carried,
        # even where it could be had by now.
        more = [
            task_id for task_id in due if task_id not in locked_tasks and task_id not in task_ids
        ]
        _lock_due(tx, more, locked_tasks, graphs, cache, now, turned)
        _look_at_due(tx, due, locked_tasks, room, now, turned)
    return locked_tasks


def _places(batch: Batch) -> list[tuple[str, int, int]]:
    """Return where the steps stand that outcomes and notes are about, and their dependents."""
    places: dict[tuple[str, int, int], None] = {}
    claims = [part.claim for part in batch.settles] + [part.claim for part in batch.notes]
    for claim in claims:
        places[(claim.task_id, claim.index, claim.parallel_index)] = None
        if claim.parallel_index >= 0:
            places[(claim.task_id, claim.index, -1)] = None
    for settle in batch.settles:
        claim = settle.claim
        if claim.parallel_index < 0:
            for index in settle.graph.dependents[claim.index]:
                places[(claim.task_id, index, -1)] = None
    return list(places)


def _lock_due(
    tx: Connection,
    task_ids: list[str],
    locked_tasks: dict[str, LockedTask],
    graphs: GraphCache,
    cache: TaskCache,
    now: int,
    turned: TxResult,
) -> None:
    """Lock and read more tasks, those that are due."""
    known = cache.take(task_ids, now)
    if not tx.can_assume:
        locked_tasks |= known
    unread = [task_id for task_id in task_ids if task_id not in locked_tasks]
    if unread:
        task_rows = reads.lock_tasks(tx, TASK_COLUMNS, unread)
        turned.has_locked = len(task_rows) < len(unread)
        for values in task_rows:
            _add_unit(tx, locked_tasks, values, graphs, now)


def _look_at_due(
    tx: Connection,
    due: list[str],
    locked_tasks: dict[str, LockedTask],
    room: ClaimCapacity,
    now: int,
    turned: TxResult,
) -> None:
    """Read the due steps of tasks that are due, and do what is due besides claiming."""
    wanted = [
        task_id
        for task_id in due
        if task_id in locked_tasks and _is_due(locked_tasks[task_id], now)
    ]
    if wanted:
        # Tasks take turns: none of them needs more than its share of the slots.
        share = max(1, -(-room.slots // len(wanted)))
        due_rows = reads.due_steps(tx, STEP_COLUMNS, wanted, now, share)
        turned.has_more = turned.has_more or len(due_rows) >= share
        for values in due_rows:
            locked_tasks[values[1]].add(StepRow.read(values))
        for task_id in wanted:
            _look(tx, locked_tasks[task_id], room)


def _gone(tx: Connection, missing: set[str]) -> set[str]:
    """Return those of the tasks that could not be locked which do not exist any more."""
    return missing - reads.existing_tasks(tx, sorted(missing)) if missing else set()


def _add_unit(
    tx: Connection,
    locked_tasks: dict[str, LockedTask],
    values: tuple[Any, ...],
    graphs: GraphCache,
    now: int,
) -> None:
    task = TaskRow.read(values)
    graph = graphs.get(tx, task.workflow_name, task.workflow_version)
    locked_tasks[task.id] = LockedTask(task, graph, now)


def _is_due(locked: LockedTask, now: int) -> bool:
    """Whether a task that was found due still is, under its lock."""
    task = locked.task
    return (
        task.status == TaskStatus.RUNNING
        and task.next_wake_time is not None
        and task.next_wake_time <= now
    )


def _look(tx: Connection, locked: LockedTask, room: ClaimCapacity) -> None:
    """Do what is due in a task besides claiming: wake, push on, recover, expand, time out."""
    task = locked.task
    # Even when nothing comes of it, the task's wake time must be derived anew.
    locked.is_touched = True
    if task.deadline is not None and task.deadline <= locked.now:
        advance.miss_deadline(tx, locked)
    for step in list(locked.steps.values()):
        if step.wake_at is None or step.wake_at > locked.now:
            continue
        if step.status == StepStatus.RUNNING:
            # Whoever is dead is found by `succession`; here nobody is.
            step.wake_at = claiming.look_at(locked.now, room.lease_us)
        elif step.status == StepStatus.WAITING:
            _wake(tx, locked, step)


def _wake(tx: Connection, locked: LockedTask, step: StepRow) -> None:
    if step.is_group:
        step.wake_at = None
        fanout.admit(tx, locked, step)
        return
    match step.wait:
        case Approval() | UnknownCall(approval_id=str()):
            approvals.check(tx, locked, step)
        case Child(task_id=str() as child_id):
            status = child_tasks.ended_status(tx, child_id)
            if status is None:
                step.wake_at = locked.now + settlement.CHILD_CHECK_US
            else:
                transitions.wake(locked, step, {"status": status})
        case Timer():
            transitions.wake(locked, step)
        case _:
            transitions.wake(locked, step, {"expired": True})


def _apply(
    tx: Connection,
    batch: Batch,
    room: ClaimCapacity,
    graphs: GraphCache,
    locked_tasks: dict[str, LockedTask],
    turned: TxResult,
) -> None:
    """Apply notes and outcomes to the units that could be locked; carry the rest."""
    intents = ((note.claim.task_id, note.intent) for note in batch.notes)
    purse = budgets.open_purse(tx, graphs, locked_tasks, intents)
    for note in batch.notes:
        locked = locked_tasks.get(note.claim.task_id)
        if note.claim.task_id in turned.gone:
            turned.noted.append((note, False))
        elif locked is None:
            note.tries += 1
            turned.carried_notes.append(note)
        else:
            turned.noted.append((note, _note(locked, note, room.worker_id, purse)))
    if purse is not None:
        purse.write(tx)
    for settle in batch.settles:
        locked = locked_tasks.get(settle.claim.task_id)
        if settle.claim.task_id in turned.gone:
            turned.settled.append((settle, False))
            continue
        if locked is None:
            settle.tries += 1
            turned.carried_settles.append(settle)
            continue
        is_held = settlement.settle(tx, locked, settle.claim, settle.outcome, room.worker_id)
        if is_held:
            _tell_unknown(locked, settle)
        turned.settled.append((settle, is_held))
    for end in batch.child_ends:
        locked = locked_tasks.get(end.parent_task_id)
        if end.parent_task_id in turned.gone:
            continue
        if locked is None:
            turned.carried_ends.append(end)
        else:
            child_tasks.wake_parent(tx, locked, end)


def _note(
    locked: LockedTask, note: JournalEntry, worker_id: str, purse: budgets.BudgetLocks | None
) -> bool:
    """Record what a running attempt asked for; a result is recorded whatever became of the claim."""
    note.refusal = None
    if note.result is not None:
        locked.results.append(note.result)
        return True
    step = locked.steps.get((note.claim.index, note.claim.parallel_index))
    if step is None or not settlement.holds(step, note.claim, worker_id):
        return False
    if note.checkpoint is not None:
        step.also(checkpoint=note.checkpoint)
    if note.delay is not None:
        locked.emit("step.delayed" if note.delay else "step.proceeded", step, note.delay or None)
    intent = note.intent
    if intent is not None:
        if locked.task.phase == "failing" and not advance.is_cleanup(locked, step):
            return False
        if intent.reservation is not None:
            assert purse is not None
            note.refusal = purse.reserve(locked, step, intent)
            if note.refusal is not None:
                return False
        # By the attempt that intends it: an outcome in the same turn may begin the next one.
        locked.intents.append((step.id, step.attempt, intent))
        locked.emit("tool_call.intended", step, {"call": intent.call_id, "action": intent.action})
        if intent.settles_step:
            step.idempotency_key = intent.idempotency_key
        if intent.process_id is not None:
            step.process_id = intent.process_id
            step.also(process_started=intent.process_started)
    return True


def _tell_unknown(locked: LockedTask, settle: Completion) -> None:
    """Say in the log that an effect of this attempt may have happened.

    A later attempt that waits on that unknown is told of by its question.
    """
    outcome = settle.outcome
    if isinstance(outcome, Retry) and outcome.is_unknown:
        locked.emit("tool_call.unknown", None, {"step": settle.claim.step_id})


def _create(
    tx: Connection,
    batch: Batch,
    graphs: GraphCache,
    cache: TaskCache,
    now: int,
    turned: TxResult,
    locked_tasks: dict[str, LockedTask],
    room: ClaimCapacity,
) -> list[LockedTask]:
    """Create what was submitted, and the children that steps asked for."""
    new: list[LockedTask] = []
    known: dict[int, int] = {}
    """Versions by the identity of their graphs: most submissions of a batch share one."""
    # The same delivery may come twice in one batch.
    by_key: dict[str, str] = {}
    for submission in batch.submissions:
        existing, key = None, submission.dedupe_key
        if key is not None:
            existing = by_key.get(key) or reads.task_by_dedupe_key(tx, key)
            by_key[key] = existing or submission.task_id
        if existing is None:
            version = known.get(id(submission.graph))
            if version is None:
                version = known[id(submission.graph)] = _version(tx, submission, cache, now)
            new.append(creation.create(tx, submission, version, now))
        turned.created[submission.task_id] = existing or submission.task_id
    for locked in locked_tasks.values():
        for step, asked in locked.children:
            if step.status == StepStatus.WAITING:
                child = child_tasks.create_child(tx, locked, step, asked, graphs, room.max_depth)
                if child is not None:
                    new.append(child)
        if locked.children:
            advance.advance(tx, locked)
    return new


def _version(tx: Connection, submission: Submission, cache: TaskCache, now: int) -> int:
    """Return the version of a submission's workflow, as remembered where that is checked."""
    workflow = (submission.graph.name, submission.graph.hash, submission.path)
    version = cache.versions.get(workflow) if tx.can_assume else None
    if version is not None:
        workflow_versions.assume(tx, submission.graph.name, version)
        return version
    version = cache.versions[workflow] = creation.register(tx, submission, now)
    return version


def _report(locked: LockedTask, turned: TxResult) -> None:
    """Collect what the worker acts on after the commit."""
    task = locked.task
    turned.events += locked.events
    turned.stops += [(step.id, step.claim_token) for step in locked.stops]
    turned.orphans += locked.orphans
    turned.pauses += locked.pauses
    was = task.original[1] if task.original else None
    if task.status in TASK_ENDED and was not in TASK_ENDED:
        turned.ended.append(
            child_tasks.ChildEnd(
                task.id, task.status, task.parent_task_id or "", task.parent_step_id
            )
        )
