"""The operator's commands, from any process: each one transaction under the task's lock.

An operator waits for a task that a worker has locked. Parents are locked before their children,
level by level. Each commit notifies running daemons, which stop or pause the attempts concerned.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent.core.clock import Clock
from agent.core.lazy_module import lazy
from agent.core.plain_json import Json
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.core.state_machine import TASK_ENDED, StepStatus
from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.engine import task_rows
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import state_table
from agent.tasks.operator.agent_call import AgentCall, event_data
from agent.tasks.operator.task_locks import TaskLocks
from agent.tasks.rules import advance, row_writer
from agent.tasks.state import pauses, transitions
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import FamilyPause, LockedTask
from agent.tasks.state.pauses import NO_PAUSE, Pause, PauseKind

if TYPE_CHECKING:
    from agent.store.engine import lineage
    from agent.tasks.operator import newer_versions
    from agent.tasks.rules import budgets, call_ledger, child_tasks, creation, settlement
    from agent.tasks.rules.creation import Submission
    from agent.tasks.rules.firings import firing, trigger_update
    from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
    from agent.tasks.rules.retries import retry_fork
else:
    # A command from a terminal uses few of them.
    budgets = lazy("agent.tasks.rules.budgets")
    call_ledger = lazy("agent.tasks.rules.call_ledger")
    child_tasks = lazy("agent.tasks.rules.child_tasks")
    creation = lazy("agent.tasks.rules.creation")
    firing = lazy("agent.tasks.rules.firings.firing")
    lineage = lazy("agent.store.engine.lineage")
    newer_versions = lazy("agent.tasks.operator.newer_versions")
    retry_fork = lazy("agent.tasks.rules.retries.retry_fork")
    settlement = lazy("agent.tasks.rules.settlement")
    trigger_update = lazy("agent.tasks.rules.firings.trigger_update")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command, for a person and for a program."""

    is_changed: bool
    message: str
    task_id: str


class Operator:
    """Commands on the tasks of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clock = clock
        self._graphs = GraphCache()
        self._locks = TaskLocks(database, clock, self._graphs)

    def submit(self, submission: "Submission") -> str:
        """Create a task and return its id, or that of the task with the same dedupe key."""
        try:
            return self._create(submission)
        except StoreError as error:
            if error.fault is not Fault.DATA or submission.dedupe_key is None:
                raise
            # Another process has used the key since we checked: its task exists now.
            return self._create(submission)

    def _create(self, submission: "Submission") -> str:
        with self._locks.transaction() as tx:
            if submission.dedupe_key is not None:
                existing = task_rows.task_by_dedupe_key(tx, submission.dedupe_key)
                if existing is not None:
                    return existing
            now = self._clock.now()
            version = creation.register(tx, submission, now)
            locked = creation.create(tx, submission, version, now)
            row_writer.write(tx, [locked], locked.now)
        return submission.task_id

    def fire(self, update: "TriggerUpdate") -> "FireResult":
        """Apply a plan for a trigger; cancel the tasks that it supersedes."""
        with self._locks.transaction() as tx:
            now = self._clock.now()
            fired = firing.fire(tx, self._graphs, [update], now, is_waiting=True)
            row_writer.write(tx, fired.tasks, now)
        ((_, result),) = fired.done
        for task_id in result.superseded:
            with suppress(NotFoundError, RefusedError):
                self.cancel(task_id, "a later run of its schedule replaces it")
        return result

    def pause(
        self, task_id: str, reason: str | None = None, by: AgentCall | None = None
    ) -> CommandResult:
        """Let nothing new start; attempts in flight finish or reach their next checkpoint."""

        def pause(_tx: Connection, locked: LockedTask) -> None:
            transitions.pause_task(locked, Pause(PauseKind.OPERATOR, reason), event_data(by))

        return self._command("pause", task_id, pause, "paused", by)

    def resume(self, task_id: str, by: AgentCall | None = None) -> CommandResult:
        """Resume a paused task: timers and retries that came due meanwhile take effect now."""

        def resume(tx: Connection, locked: LockedTask) -> None:
            resume_task(tx, locked, event_data(by))

        return self._command("resume", task_id, resume, "resumed", by)

    def cancel(
        self, task_id: str, reason: str | None = None, by: AgentCall | None = None
    ) -> CommandResult:
        """End a task: its steps are abandoned in place, their attempts stopped."""
        uncertain: list[str] = []

        def cancel(tx: Connection, locked: LockedTask) -> None:
            steps = locked.load_open(tx)
            uncertain.extend(call_ledger.report_unknown(tx, locked, steps))
            for step in steps:
                transitions.abandon(locked, step)
            locked.task.steps_running = 0
            data = ({"reason": reason} if reason else {}) | event_data(by)
            transitions.move_task(locked, "task.canceled", data or None)

        result = self._command("cancel", task_id, cancel, "canceled", by)
        if uncertain:
            names = ", ".join(dict.fromkeys(uncertain))
            text = f"{result.message}; what these steps were doing may have happened: {names}"
            return CommandResult(True, text, task_id)
        return result

    def retry(
        self,
        task_id: str,
        *,
        is_latest: bool = False,
        not_before: int | None = None,
        reason: str | None = None,
    ) -> CommandResult:
        """Start a new task from a failed one: succeeded steps are kept, the rest runs again.

        With `is_latest` it goes on under the newest version of the workflow. With `not_before` no
        step of it starts before that instant.
        """
        with self._locks.transaction() as tx:
            old = self._locks.lock(tx, task_id)
            again = lineage.retried_as(tx, task_id)
            if again is not None:
                message = newer_versions.already_retried(tx, again, is_latest=is_latest)
                return CommandResult(False, message, again)
            state_table.check("retry", old.task.status)
            below = lineage.open_descendant(tx, task_id)
            if below is not None:
                raise RefusedError(f"its child task {below} has not ended; cancel it first")
            alive_until = lineage.effects_alive_until(tx, task_id)
            if alive_until is not None and alive_until > old.now:
                raise RefusedError(
                    "an effect of its last attempt may still be under way;"
                    f" try again in {(alive_until - old.now) // 1_000_000 + 1} s"
                )
            versions = newer_versions.NewerVersions(tx, self._graphs, old)
            latest = versions.chosen() if is_latest else None
            with versions.explained():
                new, asked_again = retry_fork.retry(tx, old, latest=latest)
            if not_before is not None or reason is not None:
                _postpone(new, not_before, reason)
            row_writer.write(tx, [old, new], old.now)
        message = f"retried as {new.task.id}{versions.remark(new)}"
        message += newer_versions.asked_again(asked_again)
        return CommandResult(True, message, new.task.id)

    def fork(
        self,
        task_id: str,
        from_step: str | None,
        edited: dict[str, Json] | None = None,
        dedupe_key: str | None = None,
        *,
        is_latest: bool = False,
    ) -> CommandResult:
        """Start a new task that runs a step and the steps after it again, with edited input; None: all steps."""
        with self._locks.transaction() as tx:
            old = self._locks.lock(tx, task_id)
            if dedupe_key is not None:
                existing = task_rows.task_by_dedupe_key(tx, dedupe_key)
                if existing is not None:
                    return CommandResult(False, f"already forked as {existing}", existing)
            state_table.check("fork", old.task.status)
            versions = newer_versions.NewerVersions(tx, self._graphs, old)
            latest = versions.chosen() if is_latest else None
            graph = old.graph if latest is None else latest.graph
            if from_step is not None and from_step not in graph.index_of:
                from agent.tasks.operator.step_names import no_such_step

                raise no_such_step(graph, from_step)
            with versions.explained():
                new, repeated, asked_again = retry_fork.fork(
                    tx, old, from_step, edited or {}, latest
                )
            if dedupe_key is not None:
                new.task.set_columns(dedupe_key=dedupe_key)
            row_writer.write(tx, [old, new], old.now)
        message = f"forked as {new.task.id}{versions.remark(new)}"
        if repeated:
            message += f"; it will repeat the effects of: {', '.join(repeated)}"
        other = "input" if latest is None else "input or question"
        message += newer_versions.asked_again(asked_again, f"answered under another {other}, ")
        return CommandResult(True, message, new.task.id)

    def signal(self, task_id: str, name: str, payload: Json = None) -> CommandResult:
        """Send a named signal with a value, to the step that waits for it or to the first that will."""
        from agent.core.ids import new_id
        from agent.core.waits import Signal
        from agent.store.db import json_values
        from agent.store.engine import signals
        from agent.tasks.operator.step_names import never_received

        with self.changing(task_id) as (tx, locked):
            state_table.check("signal", locked.task.status)
            text = json_values.encode(payload, "payload")
            signals.insert(tx, new_id(), task_id, name, text, locked.now)
            receiver = None
            for step in locked.load_open(tx):
                if step.status == StepStatus.WAITING and step.wait == Signal(name):
                    if settlement.take_signal(tx, locked, step, name):
                        receiver = locked.definition(step).name
                    break
        if receiver is None:
            kept = f"kept until a step waits for {name!r}"
            return CommandResult(True, kept + never_received(locked.graph, name), task_id)
        return CommandResult(True, f"step {receiver!r} goes on", task_id)

    def pause_family(self, family: FamilyPause) -> None:
        """Pause a task and its descendants while the one that found the budget used up is paused.

        Each in a transaction of its own: the budget's row decides.
        """
        from agent.store.engine import budget_rows

        task_ids: list[str] = []
        with suppress(NotFoundError, RefusedError), self.changing(family.task_id) as (tx, _):
            task_ids = [family.task_id, *lineage.below(tx, family.task_id)]
        for task_id in task_ids:
            with suppress(NotFoundError, RefusedError), self.changing(task_id) as (tx, locked):
                if budget_rows.is_paused_for_budget(tx, family.witness_id):
                    budgets.pause(locked, family.pause)
                    # Its descendants are in this family, too.
                    locked.pauses.clear()

    def _command(
        self,
        name: str,
        task_id: str,
        apply: Callable[[Connection, LockedTask], None],
        word: str,
        by: AgentCall | None,
    ) -> CommandResult:
        """Apply a command to a task and, where its state allows it, to its children."""
        with self._locks.transaction() as tx:
            locked = self._locks.lock(tx, task_id, is_ending=name == "cancel")
            if by is not None and task_rows.has_event_by(tx, task_id, by.key):
                # What other people have done to the task since then stays.
                return CommandResult(False, f"already {word} by the same call", task_id)
            cell = state_table.check(name, locked.task.status)
            if cell.effect == "same":
                return CommandResult(False, cell.message, task_id)
            apply(tx, locked)
            locked_tasks = [locked, *self._apply_to_children(tx, name, task_id, apply)]
            for changed in locked_tasks:
                advance.advance(tx, changed)
            row_writer.write(tx, locked_tasks, locked.now)
        for changed in locked_tasks:
            self._follow_up(changed)
        return CommandResult(True, word, task_id)

    @contextmanager
    def changing(self, task_id: str) -> Iterator[tuple[Connection, LockedTask]]:
        """Lock a task, let the caller change it, and end as every transaction on a task does."""
        with self._locks.transaction() as tx:
            locked = self._locks.lock(tx, task_id)
            yield tx, locked
            advance.advance(tx, locked)
            row_writer.write(tx, [locked], locked.now)
        self._follow_up(locked)

    def _follow_up(self, locked: LockedTask) -> None:
        """Apply the consequences for other tasks: wake the parent, cancel orphaned children.

        Any transaction may be the one that finds a task's time over.
        """
        self._wake_parent(locked)
        if locked.task.status in TASK_ENDED and locked.task.trigger_id is not None:
            self.fire(trigger_update.TriggerUpdate(locked.task.trigger_id))
        for family in locked.pauses:
            self.pause_family(family)
        for child_id in locked.orphans:
            with suppress(NotFoundError, RefusedError):
                self.cancel(child_id, "its parent stopped waiting for it")

    def _wake_parent(self, locked: LockedTask) -> None:
        """Wake the step that waited for an ended task, in a transaction of its own.

        Parents are locked before their children.
        """
        task = locked.task
        if task.status not in TASK_ENDED or task.parent_task_id is None:
            return
        # The parent may have been pruned. One that cannot be read cannot be woken either.
        with (
            suppress(NotFoundError, RefusedError),
            self.changing(task.parent_task_id) as locked_parent,
        ):
            tx, parent = locked_parent
            end = child_tasks.ChildEnd(task.id, task.status, parent.task.id, task.parent_step_id)
            child_tasks.wake_parent(tx, parent, end)

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
            children = [child for parent in level for child in task_rows.children(tx, parent)]
            for child_id in sorted(children):
                child = self._locks.lock(tx, child_id, is_ending=name == "cancel")
                if state_table.COMMANDS[name][child.task.status].effect == "act":
                    apply(tx, child)
                    locked_tasks.append(child)
            level = children
        return locked_tasks


def resume_task(tx: Connection, locked: LockedTask, data: dict[str, Json] | None = None) -> None:
    """Let a paused task go on, with the steps that were paused in it."""
    transitions.move_task(locked, "task.resumed", data or None)
    pauses.record(locked.task, NO_PAUSE)
    for step in locked.load_open(tx):
        if step.status == StepStatus.PAUSED:
            transitions.resume_step(locked, step)


def _postpone(locked: LockedTask, not_before: int | None, reason: str | None) -> None:
    """Let the first steps of a new task start no sooner than at an instant, and record why."""
    for step in locked.steps.values():
        if step.wake_at is not None and not_before is not None:
            step.wake_at = max(step.wake_at, not_before)
    data: dict[str, Json] = {"not_before": not_before, "reason": reason}
    locked.emit("task.requeued", None, data)
