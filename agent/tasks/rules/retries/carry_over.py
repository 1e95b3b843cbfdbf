"""The steps of a task that continues an old one: kept as they ended, reopened, or run again.

- A step is **kept** if it ended well and all its dependencies are kept. A step whose answer was given
  under another input, or for other steps than those that run on it now, is not kept (`kept_answers`).
- A group that was expanded and whose dependencies are kept is **reopened**: items that ended well are
  kept, the others run again.
- Every other step **runs again** from the beginning.

The new task may be of another version of the workflow. Steps are then the same by their names; `version_fit`
refuses steps that cannot be kept, and `changed_questions` finds the answers to questions that changed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

from agent.core import waits
from agent.core.ids import new_id
from agent.core.state_machine import CallStatus, StepStatus
from agent.core.waits import Items
from agent.store.db.database import Connection
from agent.store.engine import attempt_reads, lineage
from agent.tasks.errors import RefusedError
from agent.tasks.rules import advance
from agent.tasks.rules.creation import blank_step
from agent.tasks.rules.retries.changed_questions import AskingTask, changed_questions
from agent.tasks.rules.retries.kept_answers import (
    ASKING_KINDS,
    EndedStep,
    StaleAnswer,
    stale_answers,
)
from agent.tasks.rules.retries.version_fit import Misfits, changes_to, differences
from agent.tasks.state import transitions
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import NO_ITEM, StepRow
from agent.tasks.state.transitions import SKIPPED_BY_FAILURE
from agent.workflows.graph import Graph

_NOT_KEPT: Final = SKIPPED_BY_FAILURE | {"run_on"}
"""Reasons for which a skipped step is decided again."""


@dataclass(frozen=True, slots=True)
class _OldStep:
    """A step, a group or an item of the old task; the fields are columns."""

    id: str
    task_id: str
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
    first_claimed_at: int | None

    @property
    def has_ended_well(self) -> bool:
        if self.status == StepStatus.SKIPPED:
            return self.skip_reason not in _NOT_KEPT
        return self.status == StepStatus.SUCCEEDED


_COLUMNS: Final = tuple(field.name for field in fields(_OldStep))
_OldSteps = dict[int, list[_OldStep]]
"""By index: the step or group first, then its items."""


def carry_over(tx: Connection, old: LockedTask, new: LockedTask, choice: "Choice") -> None:
    """Give a new task its steps and start it."""
    graph = new.graph
    old_steps, kept, reopened, _ = choice
    with_calls = lineage.steps_with_calls(tx, old.task.id) if new.retries is not None else set()
    for index in graph.order:
        steps = old_steps.get(index, [])
        if index in kept:
            for old_step in steps:
                _keep(new, old_step)
        elif index in reopened:
            _reopen_group(tx, new, steps[0], steps[1:], with_calls)
        else:
            blank = new.add(blank_step(graph, new.task.id, index))
            if steps and steps[0].id in with_calls:
                blank.inherit_history()
                _inherit_read(tx, blank, steps[0], graph)
    _start(tx, new, kept)


class Choice(NamedTuple):
    """What becomes of the steps of the old task."""

    old_steps: _OldSteps
    kept: set[int]
    reopened: set[int]
    asked_again: dict[str, list[str]]
    """The steps that had ended well, and whose question a person must answer again: each with the changes of steps that
    its answer does not cover; none for another input and another question."""


def choose(
    tx: Connection,
    old: LockedTask,
    new: LockedTask,
    rerun: frozenset[int] = frozenset(),
    above: Sequence[str] | None = None,
    *,
    is_from_beginning: bool = False,
) -> Choice:
    """Choose what a new task keeps; nothing is made, and no lock is needed. Steps of `rerun` run again in any case.

    With `above` every answer is asked for again, since a task above has changed so. Raise `RefusedError` where the kept steps do
    not fit the version of the new task.
    """
    graph = new.graph
    old_steps = _read_steps(tx, old, graph)
    name, number = new.task.workflow_name, new.task.workflow_version
    stale = stale_answers(
        tx,
        old.task.id,
        graph,
        {
            index: [EndedStep(step.id, step.ended_at) for step in steps]
            for index, steps in old_steps.items()
        },
        new.task.extra["input"],
        changes_to(tx, name, number, graph, is_about_to_run=True),
        above,
    )
    if above is not None:
        rerun = rerun.union(*(graph.downstream(index) for index in stale))
    unfit: frozenset[int] = frozenset()
    is_other_version = new.task.workflow_version != old.task.workflow_version
    if is_other_version:
        ended_well = [
            graph.steps[index].name for index in old_steps if _has_ended_well(old_steps, index)
        ]
        before = AskingTask(old.task.id, old.task.workflow_version, old.graph)
        for index in changed_questions(tx, before, graph, ended_well):
            stale[index] = StaleAnswer(graph.downstream(index))
        unfit = _changed_steps(old.graph, graph, old_steps)
    rerun, kept = _choose_kept(graph, old_steps, rerun, stale, unfit)
    reopened = {
        index
        for index in old_steps
        if index not in kept | rerun | unfit and _may_reopen(graph, old_steps[index], index, kept)
    }
    if is_other_version and not is_from_beginning:
        _check_fit(tx, old, new, rerun, kept | reopened)
    asked_again = {
        graph.steps[index].name: list(stale[index].changes)
        for index in sorted(stale.keys() - kept)
        if _has_ended_well(old_steps, index)
    }
    if new.retries is not None:
        _refuse_agents(graph, asked_again)
    return Choice(old_steps, kept, reopened, asked_again)


def _refuse_agents(graph: Graph, asked_again: Iterable[str]) -> None:
    """Refuse to retry where a workflow that an agent ran would have to ask again: a recorded use is not repeated."""
    for name in asked_again:
        if graph.steps[graph.index_of[name]].kind == "agent":
            raise RefusedError(
                f"a workflow that step {name!r} ran has asked a person, and the answer does not cover what would"
                f" run now: `fork --from {name}` runs it again, with its effects"
            )


def _read_steps(tx: Connection, old: LockedTask, graph: Graph) -> _OldSteps:
    """Read the steps of the old task, by their indexes in a graph that may be another version's.

    Steps that the graph does not have are left out.
    """
    new_indexes = [graph.index_of.get(step.name) for step in old.graph.steps]
    steps: _OldSteps = {}
    for values in lineage.steps_of(tx, _COLUMNS, old.task.id):
        step = _OldStep(*values)
        new_index = new_indexes[step.index]
        if new_index is not None:
            steps.setdefault(new_index, []).append(
                step if new_index == step.index else replace(step, index=new_index)
            )
    return steps


def _has_ended_well(old_steps: _OldSteps, index: int) -> bool:
    return index in old_steps and old_steps[index][0].has_ended_well


def _may_reopen(graph: Graph, steps: list[_OldStep], index: int, kept: set[int]) -> bool:
    """Whether a step is a group that was expanded, and whose dependencies are all kept."""
    group, *items = steps
    return group.items is not None and bool(items) and kept.issuperset(graph.parents[index])


def _changed_steps(old: Graph, new: Graph, old_steps: _OldSteps) -> frozenset[int]:
    """Return the steps whose definition has changed, and which therefore cannot be kept.

    The text of a question does not count here: `changed_questions` compares it as people saw it.
    """
    changed = set()
    for index in old_steps:
        after = new.steps[index]
        before = old.steps[old.index_of[after.name]]
        if before.kind == after.kind and after.kind in ASKING_KINDS:
            before = replace(before, config=after.config)
        if differences(before, after):
            changed.add(index)
    return frozenset(changed)


def _check_fit(
    tx: Connection, old: LockedTask, new: LockedTask, rerun: frozenset[int], kept: set[int]
) -> None:
    """Refuse a version that would run steps again that their own version would have kept.

    `rerun` and `kept` are the choice for the new version. The same choice is made for the old version:
    each succeeded step that it keeps must be kept. In a retry, a step that has acted must also find its
    calls again, by its name and kind.
    """
    graph = new.graph
    by_old_index = _read_steps(tx, old, old.graph)
    old_rerun = frozenset(
        old.graph.index_of[graph.steps[index].name]
        for index in rerun
        if graph.steps[index].name in old.graph.index_of
    )
    _, kept_under_old_version = _choose_kept(old.graph, by_old_index, old_rerun, {}, frozenset())
    succeeded = [
        old.graph.steps[index].name
        for index, steps in by_old_index.items()
        if index in kept_under_old_version
        or (index not in old_rerun and _may_reopen(old.graph, steps, index, kept_under_old_version))
        if any(step.status == StepStatus.SUCCEEDED for step in steps)
    ]
    kept_names = {graph.steps[index].name for index in kept}
    misfits = Misfits(old.graph, graph, new.task.workflow_version)
    misfits.add_kept(succeeded, kept_names)
    if new.retries is not None:
        unknown = {
            old.graph.steps[call.step_index].name
            for call in lineage.calls_of(tx, old.task.id)
            if call.status == CallStatus.UNKNOWN and call.on_unknown != "retry"
        }
        misfits.add_acted(lineage.steps_that_acted(tx, old.task.id), kept_names, unknown)
    misfits.refuse()


def _choose_kept(
    graph: Graph,
    old_steps: _OldSteps,
    rerun: frozenset[int],
    stale: Mapping[int, StaleAnswer],
    unfit: frozenset[int],
) -> tuple[frozenset[int], set[int]]:
    """Return the steps that must run again, and those that are kept.

    No step that runs again may rely on an answer that does not cover it. Asking again makes more steps run again,
    which may rely on further stale answers: repeat until nothing changes.
    """
    while True:
        kept: set[int] = set()
        for index in graph.order:
            are_parents_kept = kept.issuperset(graph.parents[index])
            may_be_kept = index not in rerun and index not in unfit
            if may_be_kept and are_parents_kept and _has_ended_well(old_steps, index):
                kept.add(index)
        relied_on = {
            index for index in stale.keys() - rerun if not stale[index].not_covered <= kept
        }
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
    step.set_columns(
        output=old_step.output,
        skip_reason=old_step.skip_reason,
        item=old_step.item,
        items=old_step.items,
        ended_at=old_step.ended_at,
    )
    if old_step.state_read is not None:
        step.set_columns(state_read=old_step.state_read)
    new.add(step)
    new.emit("step.kept", step, {"status": old_step.status, "from": old_step.id})


def _inherit_read(tx: Connection, step: StepRow, old_step: _OldStep, graph: Graph) -> None:
    """Let a step see the values of `state` and of `now` that the old one had read.

    Its recorded calls were computed from them: with other values it would not find these calls. A step
    without calls reads again, since a person may have corrected the value before the retry.
    """
    if old_step.state_read is not None:
        step.set_columns(state_read=old_step.state_read)
    if graph.steps[step.index].reads_now:
        at = old_step.first_claimed_at
        if at is None:
            at = attempt_reads.first_claimed_at(tx, old_step.task_id, old_step.id)
        step.set_columns(first_claimed_at=at)


def _reopen_group(
    tx: Connection,
    new: LockedTask,
    old_group: _OldStep,
    old_items: list[_OldStep],
    with_calls: Collection[str],
) -> None:
    """Add a group that goes on: items that ended well are kept, the others run again."""
    max_attempts = new.graph.steps[old_group.index].retry.max_attempts
    kept_count = 0
    for old_item in old_items:
        if old_item.has_ended_well:
            _keep(new, old_item)
            kept_count += 1
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
        item.set_columns(item=old_item.item)
        if old_item.id in with_calls:
            _inherit_read(tx, item, old_item, new.graph)
        new.add(item)
    # Every old item has a row in the new task, so all of them are placed. Only those that ended well have
    # ended there; the others are pending again.
    group = StepRow.new(
        new_id(),
        new.task.id,
        old_group.index,
        status=StepStatus.WAITING,
        max_attempts=max_attempts,
        parallel_count=old_group.parallel_count,
        items_placed=len(old_items),
        items_ended=kept_count,
        items_done=kept_count,
        waiting_on=waits.dump(Items(old_group.parallel_count or 0)),
    )
    group.set_columns(items=old_group.items)
    new.add(group)
    new.emit("step.kept", group, {"status": str(StepStatus.WAITING), "from": old_group.id})


def _start(tx: Connection, new: LockedTask, kept: set[int]) -> None:
    """Start the new task: count its open steps, and release those that are ready."""
    graph = new.graph
    for index, parents in enumerate(graph.parents):
        if index not in kept:
            open_parents = [parent for parent in parents if parent not in kept]
            new.steps[(index, NO_ITEM)].deps_remaining = len(open_parents)
    steps = [new.steps[address] for address in sorted(new.steps)]
    open_steps = [step for step in steps if step.status in (StepStatus.PENDING, StepStatus.WAITING)]
    new.task.steps_open = len(open_steps)
    transitions.move_task(new, "task.started")
    new.task.set_columns(started_at=new.now)
    for step in open_steps:
        if step.status == StepStatus.WAITING or step.is_item:
            # A reopened group and its items: `fanout.admit` releases the items one by one.
            transitions.hold(new, step)
        elif step.deps_remaining == 0:
            advance.make_ready(new, step)
    advance.advance(tx, new)
