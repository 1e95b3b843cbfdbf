"""Invariants between the rows of one task and its definition, which hold at any moment."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from agent.core.clock import SECOND
from agent.core.state_machine import STEP_ENDED, TASK_ENDED, StepStatus, TaskStatus
from agent.core.waits import Child
from agent.steps.process.processes import is_running
from agent.store.read.audit.rows import AuditRows, StepFacts
from agent.tasks.checker.violation import Finding
from agent.tasks.state.isolation import IS_ISOLATED, MUST_BE_ISOLATED, WAITS_FOR_STORE
from agent.tasks.state.rows import NO_ITEM
from agent.tasks.state.transitions import SKIPPED_BY_FAILURE
from agent.workflows.graph import Graph

_PROCESS_ENDS_US: Final = 60 * SECOND
"""How long a step's process may take to end after its step."""


def check_steps(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check that the steps are those of the definition, each once, with items only in groups.

    Nor is a step isolated that runs outside of its worker's process.
    """
    addresses = Counter((step.index, step.parallel_index) for step in task.steps)
    for address, count in addresses.items():
        if count > 1:
            yield Finding(f"there are {count} steps at address {address}")
    for index, definition in enumerate(graph.steps):
        if (index, NO_ITEM) not in addresses:
            yield Finding(f"step {definition.name} is missing", definition.name)
    for step in task.steps:
        if not 0 <= step.index < len(graph.steps):
            yield Finding(f"step {step.title} is not in the definition", step.title)
            continue
        definition = graph.steps[step.index]
        if (step.name, step.kind) != (definition.name, definition.kind):
            yield Finding(
                f"step {step.title} is called {definition.name} in the definition", step.title
            )
        if step.alone not in (0, WAITS_FOR_STORE) and definition.runs_elsewhere:
            yield Finding(
                f"step {step.title} runs in another process, which cannot end its worker,"
                " and is blamed for a crash of one",
                step.title,
            )
        if step.is_item and definition.fanout is None:
            yield Finding(f"step {step.title} is an item of a step that is not a group", step.title)


def check_rows(task: AuditRows) -> Iterator[Finding]:
    """Check claims, counters, groups, and the rows of ended tasks."""
    for step in task.steps:
        yield from _check_claim(step)
    yield from _check_counters(task)
    yield from _check_groups(task)
    if task.task.status in TASK_ENDED:
        yield from _check_ended(task)


def _check_claim(step: StepFacts) -> Iterator[Finding]:
    is_running = step.status == StepStatus.RUNNING
    if is_running != (step.owner is not None) or is_running != (step.claim_turn is not None):
        yield Finding(
            f"step {step.title} is {step.status} with owner {step.owner}"
            f" and claim turn {step.claim_turn}: a running step has both, any other neither",
            step.title,
        )
    if step.alone > MUST_BE_ISOLATED and not is_running:
        what = "isolated" if step.alone == IS_ISOLATED else "waiting for a store"
        yield Finding(f"step {step.title} is {what} and {step.status}", step.title)
    if is_running and step.claim_token < 1:
        yield Finding(f"step {step.title} is running without a claim token", step.title)
    if step.owner is not None:
        if step.owner_turn is None:
            yield Finding(
                f"step {step.title} is claimed by {step.owner}, which is not a worker on record",
                step.title,
            )
        elif step.claim_turn is not None and step.claim_turn > step.owner_turn:
            yield Finding(
                f"step {step.title} was claimed in transaction {step.claim_turn} of a worker"
                f" whose last one is {step.owner_turn}",
                step.title,
            )


def check_processes(task: AuditRows, now: int) -> Iterator[Finding]:
    """Check that no process outlives its step; its start time also identifies this machine's boot."""
    for step in task.steps:
        if step.process_id is None or step.status == StepStatus.RUNNING:
            continue
        ended_at = step.ended_at or task.task.ended_at
        is_over = ended_at is not None and ended_at < now - _PROCESS_ENDS_US
        if is_over and is_running(step.process_id, step.process_started or ""):
            yield Finding(
                f"step {step.title} has ended, and its process {step.process_id} still runs",
                step.title,
            )


def _check_counters(task: AuditRows) -> Iterator[Finding]:
    steps = task.steps
    counted = {
        "steps_open": sum(step.status not in STEP_ENDED for step in steps),
        "steps_running": sum(step.status == StepStatus.RUNNING for step in steps),
        "steps_failed": sum(step.status == StepStatus.FAILED for step in steps),
        "steps_held": sum(step.held for step in steps),
        "places_taken": sum(step.placed for step in steps),
    }
    for name, count in counted.items():
        stored = getattr(task.task, name)
        if stored != count:
            yield Finding(f"{name} is {stored}, and its steps say {count}")


def _check_groups(task: AuditRows) -> Iterator[Finding]:
    items: dict[int, list[StepFacts]] = {}
    for step in task.steps:
        if step.is_item:
            items.setdefault(step.index, []).append(step)
    groups = {step.index: step for step in task.steps if step.is_group}
    for index in items.keys() - groups.keys():
        title = items[index][0].title
        yield Finding(f"step {title} is an item of a group that was never expanded", title)
    for index, group in groups.items():
        for sentence in _check_group(group, items.get(index, [])):
            yield Finding(f"step {group.title}{sentence}", group.title)


def _check_group(group: StepFacts, items: list[StepFacts]) -> Iterator[str]:
    ended = [item for item in items if item.status in STEP_ENDED]
    done_count = sum(not _by_failure(item) for item in ended)
    counted = {
        "items_placed": len(items),
        "items_ended": len(ended),
        "items_failed": sum(item.status == StepStatus.FAILED for item in items),
        "items_done": done_count,
    }
    for name, count in counted.items():
        if getattr(group, name) != count:
            yield f": {name} is {getattr(group, name)}, and its items say {count}"
    if [item.parallel_index for item in items] != list(range(len(items))):
        yield ": the numbers of its items have gaps"
    if len(items) > (group.parallel_count or 0):
        yield f" has {len(items)} of {group.parallel_count} items"
    if group.status == StepStatus.SUCCEEDED and done_count != group.parallel_count:
        yield f" succeeded with {done_count} of {group.parallel_count} items done"


def _by_failure(step: StepFacts) -> bool:
    """Whether an ended step counts as failed to its dependents."""
    if step.status == StepStatus.FAILED:
        return True
    return step.status == StepStatus.SKIPPED and step.skip_reason in SKIPPED_BY_FAILURE


def _check_ended(task: AuditRows) -> Iterator[Finding]:
    row = task.task
    if row.next_wake_time is not None or row.deadline is not None:
        yield Finding(f"it is {row.status} and has a wake time")
    if row.ended_at is None:
        yield Finding(f"it is {row.status} and has no end time")
    if row.status == TaskStatus.FAILED and not row.has_error:
        yield Finding("it failed without an error")
    if row.status == TaskStatus.SUCCEEDED and row.steps_failed:
        yield Finding(f"it succeeded with {row.steps_failed} failed steps")
    for step in task.steps:
        if step.status not in STEP_ENDED and row.status != TaskStatus.CANCELED:
            yield Finding(f"it is {row.status} and step {step.title} is {step.status}", step.title)
        left = [
            name
            for name, is_left in (
                ("running", step.status == StepStatus.RUNNING),
                ("in the window", step.placed),
                ("held back", step.held),
                ("due", step.wake_at is not None),
            )
            if is_left
        ]
        if left:
            yield Finding(
                f"it is {row.status} and step {step.title} is still {', '.join(left)}", step.title
            )


def check_dependencies(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check a step's counts of its dependencies, and that it started the child it waits for."""
    by_index = {step.index: step for step in task.steps if not step.is_item}
    for index, step in by_index.items():
        parents = [by_index[parent] for parent in graph.parents[index]]
        remaining = sum(parent.status not in STEP_ENDED for parent in parents)
        failed = sum(_by_failure(parent) for parent in parents)
        if step.deps_remaining != remaining:
            yield Finding(
                f"step {step.title}: deps_remaining is {step.deps_remaining},"
                f" and {remaining} have not ended",
                step.title,
            )
        if step.deps_failed != failed:
            yield Finding(
                f"step {step.title}: deps_failed is {step.deps_failed}, and {failed} failed",
                step.title,
            )
    for step in task.steps:
        on = step.wait if step.status == StepStatus.WAITING else None
        if isinstance(on, Child) and on.task_id and on.task_id not in task.children:
            yield Finding(
                f"step {step.title} waits for task {on.task_id}, which it did not start", step.title
            )


def check_windows(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check that no more steps and items are active than `max_parallel` and `concurrency` allow."""
    if task.task.status in TASK_ENDED:
        return
    limit = graph.max_parallel
    if limit is not None and task.task.places_taken > limit:
        yield Finding(f"{task.task.places_taken} steps are in a window of {limit}")
    for step in task.steps:
        fanout = graph.steps[step.index].fanout
        if step.is_group and fanout is not None and fanout.concurrency is not None:
            held = sum(
                item.is_item and item.index == step.index and item.held for item in task.steps
            )
            count = step.items_placed - step.items_ended - held
            if count > fanout.concurrency:
                yield Finding(
                    f"step {step.title}: {count} items in a window of {fanout.concurrency}",
                    step.title,
                )
