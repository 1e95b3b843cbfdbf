"""The operator's commands, from any process: each one transaction under the task's lock.

An operator waits for a task that a turn holds; parents are locked before their children, level by
level. A running daemon hears of the commit at once and stops or pauses the attempts concerned.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

from agent.core.clock import Clock
from agent.core.ids import new_id
from agent.core.state_machine import TASK_ENDED, ApprovalStatus, StepStatus
from agent.core.waits import Signal, UnknownCall
from agent.steps.types.outcome import Json
from agent.store.db import json_values
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import approvals as store
from agent.store.engine import lineage, reads
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.state_table import COMMANDS
from agent.tasks.rules import (
    advance,
    approvals,
    budgets,
    child_tasks,
    creation,
    retry_fork,
    row_writer,
    settlement,
)
from agent.tasks.rules.approvals import Decision
from agent.tasks.rules.creation import Submission
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.tasks.state.locked_task import FamilyPause, LockedTask
from agent.tasks.state.rows import TASK_COLUMNS, StepRow, TaskRow
from agent.workflows.diagnostics import did_you_mean
from agent.workflows.graph import Graph
from agent.workflows.templates.templates import is_template

LOCK_TIMEOUT_MS: Final = 15_000

Verdict = Literal["done", "retry", "fail"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command did, for a person and for a program."""

    is_changed: bool
    message: str
    task_id: str


class Operator:
    """Commands on the tasks of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._graphs = GraphCache()

    def submit(self, submission: Submission) -> str:
        """Create a task and return its id, or that of the task with the same dedupe key."""
        try:
            return self._create(submission)
        except StoreError as error:
            if error.fault is not Fault.DATA or submission.dedupe_key is None:
                raise
            # Another process has taken the key since we looked: its task is there now.
            return self._create(submission)

    def _create(self, submission: Submission) -> str:
        with self._transaction() as tx:
            if submission.dedupe_key is not None:
                existing = reads.task_by_dedupe_key(tx, submission.dedupe_key)
                if existing is not None:
                    return existing
            now = self._clock.now()
            version = creation.register(tx, submission, now)
            locked = creation.create(tx, submission, version, now)
            row_writer.write(tx, [locked], locked.now)
        return submission.task_id

    def pause(self, task_id: str, reason: str | None = None) -> Answer:
        """Let nothing new start; attempts in flight finish or reach their next checkpoint."""

        def pause(_tx: Connection, locked: LockedTask) -> None:
            transitions.move_task(locked, "task.paused", {"reason": reason} if reason else None)
            locked.task.also(pause_reason=reason)

        return self._command("pause", task_id, pause, "paused")

    def resume(self, task_id: str) -> Answer:
        """Go on with a paused task: what came due meanwhile takes effect now."""
        return self._command("resume", task_id, resume_task, "resumed")

    def cancel(self, task_id: str, reason: str | None = None) -> Answer:
        """End a task: its steps are abandoned in place, their attempts stopped."""

        def cancel(tx: Connection, locked: LockedTask) -> None:
            for step in locked.load_open(tx):
                transitions.abandon(locked, step)
            locked.task.steps_running = 0
            transitions.move_task(locked, "task.canceled", {"reason": reason} if reason else None)

        return self._command("cancel", task_id, cancel, "cancelled")

    def retry(self, task_id: str) -> Answer:
        """Start a new task from a failed one: what succeeded is kept, the rest runs again."""
        with self._transaction() as tx:
            old = self._lock(tx, task_id)
            again = lineage.retried_as(tx, task_id)
            if again is not None:
                return Answer(False, f"it was retried already, as {again}", again)
            self._check("retry", old)
            below = lineage.living_below(tx, task_id)
            if below is not None:
                raise RefusedError(
                    f"task {below}, which it started, has not ended; cancel it first"
                )
            alive_until = lineage.effects_alive_until(tx, task_id)
            if alive_until is not None and alive_until > old.now:
                raise RefusedError(
                    "an effect of its last attempt may still be under way;"
                    f" try again in {(alive_until - old.now) // 1_000_000 + 1} s"
                )
            new = retry_fork.retry(tx, old)
            row_writer.write(tx, [old, new], old.now)
        return Answer(True, f"retried as {new.task.id}", new.task.id)

    def fork(
        self,
        task_id: str,
        from_step: str,
        edited: dict[str, Json] | None = None,
        dedupe_key: str | None = None,
    ) -> Answer:
        """Start a new task that runs a step and what is downstream again, with edited input."""
        with self._transaction() as tx:
            old = self._lock(tx, task_id)
            if dedupe_key is not None:
                existing = reads.task_by_dedupe_key(tx, dedupe_key)
                if existing is not None:
                    return Answer(False, f"forked already, as {existing}", existing)
            self._check("fork", old)
            if from_step not in old.graph.index_of:
                raise _no_step(from_step, old)
            new, repeated, asked_again = retry_fork.fork(tx, old, from_step, edited or {})
            if dedupe_key is not None:
                new.task.also(dedupe_key=dedupe_key)
            row_writer.write(tx, [old, new], old.now)
        message = f"forked as {new.task.id}"
        if repeated:
            message += f"; it will repeat the effects of: {', '.join(repeated)}"
        if asked_again:
            message += f"; answered under another input, asked again: {', '.join(asked_again)}"
        return Answer(True, message, new.task.id)

    def resolve(
        self,
        task_id: str,
        step_name: str,
        verdict: Verdict,
        output: Json = None,
        by: str = "the operator",
    ) -> Answer:
        """Say what became of an effect whose outcome is unknown: it decides the open question."""
        with self.changing(task_id) as (tx, locked):
            self._check("resolve", locked)
            step = _find_step(tx, locked, step_name)
            on = step.wait
            question_id = on.approval_id if isinstance(on, UnknownCall) else None
            row = None if question_id is None else store.find(tx, question_id)
            if step.status != StepStatus.WAITING or row is None:
                raise RefusedError(
                    f"step {step_name!r} does not wait for an answer (it is {step.status})"
                )
            said = {"verdict": verdict, "output": output}
            decision = Decision(ApprovalStatus.ANSWERED, by, "terminal", value=said)
            approvals.decide(tx, locked, step, row, decision)
        words = {"done": "counts as done", "retry": "will be tried again", "fail": "has failed"}
        return Answer(True, f"step {step_name!r} {words[verdict]}", task_id)

    def signal(self, task_id: str, name: str, payload: Json = None) -> Answer:
        """Send a named signal with a value; a step that waits for it, or will, takes it."""
        with self.changing(task_id) as (tx, locked):
            self._check("signal", locked)
            tx.execute(
                "INSERT INTO signals (id, task_id, name, payload, sent_at)"
                " VALUES (:id, :task_id, :name, :payload, :now)",
                id=new_id(),
                task_id=task_id,
                name=name,
                payload=json_values.encode(payload, "payload"),
                now=locked.now,
            )
            taker = None
            for step in locked.load_open(tx):
                if step.status == StepStatus.WAITING and step.wait == Signal(name):
                    if settlement.take_signal(tx, locked, step, name):
                        taker = locked.definition(step).name
                    break
        if taker is None:
            kept = f"kept until a step waits for {name!r}"
            return Answer(True, kept + _never_taken(name, locked.graph), task_id)
        return Answer(True, f"step {taker!r} goes on", task_id)

    def pause_family(self, pause: FamilyPause) -> None:
        """Pause a task and all below it, as long as the one that found the budget used up is paused.

        Each in a transaction of its own: what holds is the budget's row.
        """
        task_ids: list[str] = []
        with suppress(NotFoundError, RefusedError), self.changing(pause.task_id) as (tx, _):
            task_ids = [pause.task_id, *lineage.below(tx, pause.task_id)]
        for task_id in task_ids:
            with suppress(NotFoundError, RefusedError), self.changing(task_id) as (tx, locked):
                if budgets.is_exhausted(tx, pause.witness_id):
                    budgets.pause(locked, pause.reason)
                    # Those below it are of this family, too.
                    locked.pauses.clear()

    def _command(
        self, name: str, task_id: str, apply: Callable[[Connection, LockedTask], None], word: str
    ) -> Answer:
        """Apply a command to a task and, where its state allows it, to its children."""
        with self._transaction() as tx:
            locked = self._lock(tx, task_id, is_ending=name == "cancel")
            cell = COMMANDS[name][locked.task.status]
            if cell.effect == "refuse":
                raise RefusedError(f"the task cannot be {word}: {cell.message}")
            if cell.effect == "same":
                return Answer(False, cell.message, task_id)
            apply(tx, locked)
            locked_tasks = [locked, *self._apply_to_children(tx, name, task_id, apply)]
            for changed in locked_tasks:
                advance.advance(tx, changed)
            row_writer.write(tx, locked_tasks, locked.now)
        for changed in locked_tasks:
            self._follow_up(changed)
        return Answer(True, word, task_id)

    @contextmanager
    def changing(self, task_id: str) -> Iterator[tuple[Connection, LockedTask]]:
        """Lock a task, let the caller change it, and end as every transaction on a task does."""
        with self._transaction() as tx:
            locked = self._lock(tx, task_id)
            yield tx, locked
            advance.advance(tx, locked)
            row_writer.write(tx, [locked], locked.now)
        self._follow_up(locked)

    def _follow_up(self, locked: LockedTask) -> None:
        """Do what follows for other tasks: tell the parent, cancel children nobody waits for.

        Any transaction may be the one that finds a task's time over.
        """
        self._tell_parent(locked)
        for pause in locked.pauses:
            self.pause_family(pause)
        for child_id in locked.orphans:
            with suppress(NotFoundError, RefusedError):
                self.cancel(child_id, "its parent stopped waiting for it")

    def _tell_parent(self, locked: LockedTask) -> None:
        """Wake the step that waited for an ended task; apart, since parents are locked first."""
        task = locked.task
        if task.status not in TASK_ENDED or task.parent_task_id is None:
            return
        # A parent that is gone, pruned perhaps, waits for nobody; and none is told that cannot be
        # read, since nothing could be done about it.
        with suppress(NotFoundError, RefusedError), self.changing(task.parent_task_id) as found:
            tx, parent = found
            end = child_tasks.ChildEnd(task.id, task.status, parent.task.id, task.parent_step_id)
            child_tasks.tell_parent(tx, parent, end)

    def _apply_to_children(
        self,
        tx: Connection,
        name: str,
        task_id: str,
        apply: Callable[[Connection, LockedTask], None],
    ) -> list[LockedTask]:
        locked_tasks: list[LockedTask] = []
        level = [task_id]
        while level:
            children = [child for parent in level for child in reads.children(tx, parent)]
            for child_id in sorted(children):
                child = self._lock(tx, child_id, is_ending=name == "cancel")
                if COMMANDS[name][child.task.status].effect == "act":
                    apply(tx, child)
                    locked_tasks.append(child)
            level = children
        return locked_tasks

    def _check(self, name: str, locked: LockedTask) -> None:
        cell = COMMANDS[name][locked.task.status]
        if cell.effect == "refuse":
            raise RefusedError(f"the task does not take {name!r}: {cell.message}")

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._database.connect("writer") as tx, tx.transaction():
            tx.lock_timeout(LOCK_TIMEOUT_MS)
            yield tx
            tx.notify()

    def _lock(self, tx: Connection, task_id: str, *, is_ending: bool = False) -> LockedTask:
        rows = reads.lock_tasks(tx, TASK_COLUMNS, [task_id], is_waiting=True)
        if not rows:
            raise NotFoundError(f"there is no task {task_id}")
        task = TaskRow.read(rows[0])
        try:
            graph = self._graphs.get(tx, task.workflow_name, task.workflow_version)
        except UnreadableError as error:
            if not is_ending:
                raise RefusedError(f"the task can only be cancelled: {error}") from error
            # Nothing of a definition is needed to abandon what was made of it.
            graph = Graph.model_construct(name=task.workflow_name, steps=[])
        return LockedTask(task, graph, self._clock.now())


def resume_task(tx: Connection, locked: LockedTask) -> None:
    """Let a paused task go on, with the steps that were paused in it."""
    transitions.move_task(locked, "task.resumed")
    locked.task.also(pause_reason=None)
    for step in locked.load_open(tx):
        if step.status == StepStatus.PAUSED:
            transitions.resume_step(locked, step)


def _find_step(tx: Connection, locked: LockedTask, name: str) -> StepRow:
    """Return a step by its name; an item by its name and number, as in `lines[3]`."""
    base, _, number = name.rstrip("]").partition("[")
    index = locked.graph.index_of.get(base)
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    if index is None or (number and not is_number):
        raise _no_step(name, locked)
    place = (index, int(number) if number else -1)
    locked.load(tx, [place])
    step = locked.steps.get(place)
    if step is None:
        raise _no_step(name, locked)
    return step


def _never_taken(name: str, graph: Graph) -> str:
    """Say that no step of a workflow can ever wait for a signal, where that is certain."""
    given = [step.config.get("signal") for step in graph.steps if step.kind == "wait"]
    known = list(dict.fromkeys(each for each in given if isinstance(each, str)))
    if name in known or any(map(is_template, known)):
        return ""
    hint = did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else None)
    return f", and none of {graph.name!r} does" + (f"; {hint}" if hint else "")


def _no_step(name: str, locked: LockedTask) -> NotFoundError:
    hint = did_you_mean(name, locked.graph.index_of)
    return NotFoundError(f"the task has no step called {name!r}" + (f"; {hint}" if hint else ""))
