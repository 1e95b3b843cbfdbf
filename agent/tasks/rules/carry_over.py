"""The steps of a task that continues an old one: kept as they ended, reopened, or run again.

- A step is **kept** if it ended well and all its dependencies are kept. A step whose answer was given
  under another input is not kept where a step that runs again relies on it (`kept_answers`).
- A group that was expanded and whose dependencies are kept is **reopened**: items that ended well are
  kept, the others run again.
- Every other step **runs again** from the beginning.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Final

from agent.core import waits
from agent.core.ids import new_id
from agent.core.state_machine import StepStatus
from agent.core.waits import Items
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.tasks.rules import advance, kept_answers
from agent.tasks.rules.creation import blank_step
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.tasks.state.transitions import SKIPPED_BY_FAILURE
from agent.workflows.graph import Graph

_NOT_KEPT: Final = SKIPPED_BY_FAILURE | {"run_on"}
"""Reasons for which a skipped step is decided again."""


@dataclass(frozen=True, slots=True)
class _OldStep:
    """A step, a group or an item of the old task; the fields are columns."""

    id: str
    index: int
    parallel_index: int
    status: str
    attempt: int
    output: str | None
    skip_reason: str | None
    item: str | None
    items: str | None
    parallel_count: int | None
    items_done: int
    items_placed: int
    items_ended: int
    started_at: int | None
    ended_at: int | None
    state_read: str | None

    @property
    def has_ended_well(self) -> bool:
        if self.status == StepStatus.SKIPPED:
            return self.skip_reason not in _NOT_KEPT
        return self.status == StepStatus.SUCCEEDED


_COLUMNS: Final = tuple(field.name for field in fields(_OldStep))
_OldSteps = dict[int, list[_OldStep]]
"""By index: the step or group first, then its items."""


def carry_over(
    tx: Connection, old: LockedTask, new: LockedTask, rerun: frozenset[int]
) -> list[str]:
    """Give a new task its steps and start it. Steps of `rerun` run again in any case.

    Return the names of the steps that had ended well and ask again.
    """
    graph = new.graph
    old_steps = _read_steps(tx, old.task.id)
    stale = kept_answers.stale_answers(
        tx,
        old.task.id,
        graph,
        {index: [step.id for step in steps] for index, steps in old_steps.items()},
        new.task.extra["input"],
    )
    rerun, kept = _choose_kept(graph, old_steps, rerun, stale)
    called = lineage.steps_with_calls(tx, old.task.id) if new.retries is not None else ()
    for index in graph.order:
        step, *items = old_steps[index]
        are_parents_kept = kept.issuperset(graph.parents[index])
        if index in kept:
            for old_step in (step, *items):
                _keep(new, old_step)
        elif index not in rerun and step.items is not None and are_parents_kept and items:
            _reopen_group(new, step, items, called)
        else:
            blank = new.add(blank_step(graph, new.task.id, index))
            if step.id in called:
                blank.inherit_history()
                _inherit_read(blank, step)
    _start(tx, new, kept)
    asked_again = sorted(stale - kept)
    return [graph.steps[index].name for index in asked_again if old_steps[index][0].has_ended_well]


def _read_steps(tx: Connection, task_id: str) -> _OldSteps:
    steps: _OldSteps = {}
    for values in lineage.steps_of(tx, _COLUMNS, task_id):
        step = _OldStep(*values)
        steps.setdefault(step.index, []).append(step)
    return steps


def _choose_kept(
    graph: Graph, old_steps: _OldSteps, rerun: frozenset[int], stale: frozenset[int]
) -> tuple[frozenset[int], set[int]]:
    """Return the steps that must run again, and those that are kept.

    No step that runs again may rely on a stale answer. Asking again makes more steps run again,
    which may rely on further stale answers: repeat until nothing changes.
    """
    while True:
        kept: set[int] = set()
        for index in graph.order:
            are_parents_kept = kept.issuperset(graph.parents[index])
            if index not in rerun and old_steps[index][0].has_ended_well and are_parents_kept:
                kept.add(index)
        relied_on = {index for index in stale - rerun if not graph.downstream(index) <= kept}
        if not relied_on:
            return rerun, kept
        rerun = rerun.union(*(graph.downstream(index) for index in relied_on))


def _keep(new: LockedTask, old_step: _OldStep) -> None:
    """Add a step as it ended."""
    step = StepRow.new(
        new_id(),
        new.task.id,
        old_step.index,
        parallel_index=old_step.parallel_index,
        status=old_step.status,
        attempt=old_step.attempt,
        max_attempts=max(old_step.attempt, 1),
        parallel_count=old_step.parallel_count,
        items_done=old_step.items_done,
        items_placed=old_step.items_placed,
        items_ended=old_step.items_ended,
        started_at=old_step.started_at,
    )
    step.also(
        output=old_step.output,
        skip_reason=old_step.skip_reason,
        item=old_step.item,
        items=old_step.items,
        ended_at=old_step.ended_at,
    )
    _inherit_read(step, old_step)
    new.add(step)
    new.emit("step.kept", step, {"status": old_step.status, "from": old_step.id})


def _inherit_read(step: StepRow, old_step: _OldStep) -> None:
    """Let a step see what the old one had read of `state`: its recorded calls follow from that.

    A step without calls reads again: a person may have corrected the value before the retry.
    """
    if old_step.state_read is not None:
        step.also(state_read=old_step.state_read)


def _reopen_group(
    new: LockedTask, old_group: _OldStep, old_items: list[_OldStep], called: Collection[str]
) -> None:
    """Add a group that goes on: items that ended well are kept, the others run again."""
    max_attempts = new.graph.steps[old_group.index].retry.max_attempts
    done = 0
    for old_item in old_items:
        if old_item.has_ended_well:
            _keep(new, old_item)
            done += 1
            continue
        item = StepRow.new(
            new_id(),
            new.task.id,
            old_item.index,
            parallel_index=old_item.parallel_index,
            max_attempts=max_attempts,
            parallel_count=old_item.parallel_count,
        )
        item.inherit_history()
        item.also(item=old_item.item)
        if old_item.id in called:
            _inherit_read(item, old_item)
        new.add(item)
    group = StepRow.new(
        new_id(),
        new.task.id,
        old_group.index,
        status=StepStatus.WAITING,
        max_attempts=max_attempts,
        parallel_count=old_group.parallel_count,
        items_placed=len(old_items),
        items_ended=done,
        items_done=done,
        waiting_on=waits.dump(Items(old_group.parallel_count or 0)),
    )
    group.also(items=old_group.items)
    new.add(group)
    new.emit("step.kept", group, {"status": str(StepStatus.WAITING), "from": old_group.id})


def _start(tx: Connection, new: LockedTask, kept: set[int]) -> None:
    """Start the new task: count what is open, and release the steps that are ready."""
    graph = new.graph
    for index, parents in enumerate(graph.parents):
        if index not in kept:
            open_parents = [parent for parent in parents if parent not in kept]
            new.steps[(index, -1)].deps_remaining = len(open_parents)
    steps = [new.steps[address] for address in sorted(new.steps)]
    open_steps = [step for step in steps if step.status in (StepStatus.PENDING, StepStatus.WAITING)]
    new.task.steps_open = len(open_steps)
    transitions.move_task(new, "task.started")
    new.task.also(started_at=new.now)
    for step in open_steps:
        if step.status == StepStatus.WAITING or step.is_item:
            # A reopened group and its items: `fanout.admit` releases the items one by one.
            transitions.hold(new, step)
        elif step.deps_remaining == 0:
            advance.make_ready(new, step)
    advance.advance(tx, new)
