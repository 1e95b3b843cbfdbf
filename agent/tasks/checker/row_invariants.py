"""What must hold between the rows of one task at any moment."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from agent.core import waits
from agent.core.clock import SECOND
from agent.core.state_machine import STEP_ENDED, TASK_ENDED, StepStatus, TaskStatus
from agent.core.waits import Child
from agent.steps.process.processes import is_running
from agent.store.read.audit_rows import AuditRows, StepFacts
from agent.tasks.checker.violation import Said
from agent.tasks.state.poison_isolation import IS_ISOLATED
from agent.tasks.state.transitions import SKIPPED_BY_FAILURE
from agent.workflows.graph import Graph

_CLOCKS_APART_US: Final = 5 * SECOND
"""How far a worker's clock may be from that of whoever checks."""

_PROCESS_ENDS_US: Final = 60 * SECOND
"""How long a step's process may take to end after its step."""


def shape(task: AuditRows, graph: Graph) -> Iterator[Said]:
    """The steps are those of the definition, each once, and items only where there is a group."""
    places = Counter((step.index, step.parallel_index) for step in task.steps)
    for place, count in places.items():
        if count > 1:
            yield Said(f"there are {count} steps at place {place}")
    for index, definition in enumerate(graph.steps):
        if (index, -1) not in places:
            yield Said(f"step {definition.name} is missing", definition.name)
    for step in task.steps:
        if not 0 <= step.index < len(graph.steps):
            yield Said(f"step {step.title} is not in the definition", step.title)
            continue
        definition = graph.steps[step.index]
        if (step.name, step.kind) != (definition.name, definition.kind):
            yield Said(
                f"step {step.title} is called {definition.name} in the definition", step.title
            )
        if step.is_item and definition.fanout is None:
            yield Said(f"step {step.title} is an item of a step that is no group", step.title)


def rows(task: AuditRows, now: int) -> Iterator[Said]:
    """Claims, counters, wake times, and what an ended task leaves."""
    for step in task.steps:
        yield from _claim(step)
    yield from _counters(task)
    yield from _groups(task)
    if task.task.status in TASK_ENDED:
        yield from _ended(task)
    else:
        yield from _alive(task, now)


def _claim(step: StepFacts) -> Iterator[Said]:
    is_running = step.status == StepStatus.RUNNING
    if is_running != (step.owner is not None) or is_running != (step.claim_turn is not None):
        yield Said(
            f"step {step.title} is {step.status} with owner {step.owner}"
            f" and claim turn {step.claim_turn}: a claim is whole or not there",
            step.title,
        )
    if step.alone == IS_ISOLATED and not is_running:
        yield Said(f"step {step.title} is isolated and {step.status}", step.title)
    if is_running and step.claim_token < 1:
        yield Said(f"step {step.title} is running under no token", step.title)
    if step.owner is not None:
        if step.owner_turn is None:
            yield Said(
                f"step {step.title} is claimed by {step.owner}, which is no worker on record",
                step.title,
            )
        elif step.claim_turn is not None and step.claim_turn > step.owner_turn:
            yield Said(
                f"step {step.title} was claimed in turn {step.claim_turn} of a worker"
                f" whose last one is {step.owner_turn}",
                step.title,
            )


def processes(task: AuditRows, now: int) -> Iterator[Said]:
    """No process outlives its step; the start time names this machine's boot as well."""
    for step in task.steps:
        if step.process_id is None or step.status == StepStatus.RUNNING:
            continue
        ended_at = step.ended_at or task.task.ended_at
        is_over = ended_at is not None and ended_at < now - _PROCESS_ENDS_US
        if is_over and is_running(step.process_id, step.process_started or ""):
            yield Said(
                f"step {step.title} has ended, and its process {step.process_id} still runs",
                step.title,
            )


def _counters(task: AuditRows) -> Iterator[Said]:
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
            yield Said(f"{name} is {stored}, and its steps say {count}")


def _groups(task: AuditRows) -> Iterator[Said]:
    items: dict[int, list[StepFacts]] = {}
    for step in task.steps:
        if step.is_item:
            items.setdefault(step.index, []).append(step)
    groups = {step.index: step for step in task.steps if step.is_group}
    for index in items.keys() - groups.keys():
        title = items[index][0].title
        yield Said(f"step {title} is an item of a group that was never decided", title)
    for index, group in groups.items():
        own = items.get(index, [])
        ended = [item for item in own if item.status in STEP_ENDED]
        counted = {
            "items_placed": len(own),
            "items_ended": len(ended),
            "items_failed": sum(item.status == StepStatus.FAILED for item in own),
            "items_done": sum(not _by_failure(item) for item in ended),
        }
        for name, count in counted.items():
            if getattr(group, name) != count:
                yield Said(
                    f"step {group.title}: {name} is {getattr(group, name)},"
                    f" and its items say {count}",
                    group.title,
                )
        if [item.parallel_index for item in own] != list(range(len(own))):
            yield Said(f"step {group.title}: its items are not numbered without gaps", group.title)
        if len(own) > (group.parallel_count or 0):
            yield Said(
                f"step {group.title} has {len(own)} of {group.parallel_count} items", group.title
            )
        if group.status == StepStatus.SUCCEEDED and counted["items_done"] != group.parallel_count:
            yield Said(
                f"step {group.title} succeeded with {counted['items_done']}"
                f" of {group.parallel_count} items done",
                group.title,
            )


def _by_failure(step: StepFacts) -> bool:
    """Whether a step that ended counts as failed to those that depend on it."""
    if step.status == StepStatus.FAILED:
        return True
    return step.status == StepStatus.SKIPPED and step.skip_reason in SKIPPED_BY_FAILURE


def _ended(task: AuditRows) -> Iterator[Said]:
    row = task.task
    if row.next_wake_time is not None or row.deadline is not None:
        yield Said(f"it is {row.status} and would still be woken")
    if row.ended_at is None:
        yield Said(f"it is {row.status} and has no end")
    if row.status == TaskStatus.FAILED and not row.has_error:
        yield Said("it failed without an error")
    if row.status == TaskStatus.SUCCEEDED and row.steps_failed:
        yield Said(f"it succeeded with {row.steps_failed} failed steps")
    for step in task.steps:
        if step.status not in STEP_ENDED and row.status != TaskStatus.CANCELED:
            yield Said(f"it is {row.status} and step {step.title} is {step.status}", step.title)
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
            yield Said(
                f"it is {row.status} and step {step.title} is still {', '.join(left)}", step.title
            )


def _alive(task: AuditRows, now: int) -> Iterator[Said]:
    row = task.task
    if row.ended_at is not None:
        yield Said(f"it is {row.status} and has an end")
    for step in task.steps:
        yield from _open_step(step, row.status)
    if row.status != TaskStatus.RUNNING:
        return
    if row.steps_open == 0:
        yield Said("it is running and all its steps have ended")
    wakes = [step.wake_at for step in task.steps if step.wake_at is not None]
    if row.deadline is not None:
        wakes.append(row.deadline)
    least = min(wakes, default=None)
    if row.next_wake_time is None:
        if least is not None:
            yield Said(f"nothing wakes it, and something is due at {least}")
        elif not any(
            step.status == StepStatus.WAITING and isinstance(step.wait, waits.NEEDS_OUTSIDER)
            for step in task.steps
        ):
            yield Said("it is running, nothing wakes it, and it waits on nothing named")
    elif least is None or row.next_wake_time < least:
        yield Said(f"it is woken at {row.next_wake_time}, and nothing is due before {least}")
    elif row.next_wake_time > max(least, now + _CLOCKS_APART_US):
        # A wake time is never written in the past: one that has passed may stand behind its step's.
        yield Said(f"it is woken at {row.next_wake_time}, later than what is due at {least}")


def _open_step(step: StepFacts, task_status: str) -> Iterator[Said]:
    """What a step that may still run must be: due, held back, or waiting on something."""
    if step.status in STEP_ENDED:
        if step.wake_at is not None or step.held or step.placed:
            yield Said(
                f"step {step.title} is {step.status} and still due, held back or in the window",
                step.title,
            )
        return
    if step.status == StepStatus.RUNNING and (step.wake_at is None or not step.placed):
        yield Said(
            f"step {step.title} is running without a place or a time to look at it", step.title
        )
    if step.status == StepStatus.PAUSED and task_status == TaskStatus.RUNNING:
        yield Said(f"step {step.title} is paused in a running task", step.title)
    if step.held and step.status != StepStatus.PENDING and not step.is_group:
        yield Said(f"step {step.title} is {step.status} and held back", step.title)
    if step.status == StepStatus.PENDING:
        is_ready = step.deps_remaining == 0 and task_status != TaskStatus.PENDING
        is_kept = bool(step.held)
        if is_ready and step.wake_at is None and not is_kept:
            yield Said(f"step {step.title} is ready, and neither due nor held back", step.title)
        if step.wake_at is not None and (is_kept or not is_ready or not step.placed):
            yield Said(f"step {step.title} is due and could not be claimed", step.title)
    if step.status == StepStatus.WAITING:
        on = step.wait
        if on is None:
            yield Said(f"step {step.title} waits on nothing named", step.title)
        elif step.is_group:
            has_open = step.items_placed > step.items_ended
            if not has_open and not step.held and step.wake_at is None:
                yield Said(
                    f"step {step.title} waits for items, and none is open or to come", step.title
                )
        elif step.wake_at is None and not isinstance(on, waits.NEEDS_OUTSIDER):
            yield Said(
                f"step {step.title} waits on {waits.KEYS[type(on)]} and nothing wakes it",
                step.title,
            )


def dependencies(task: AuditRows, graph: Graph) -> Iterator[Said]:
    """What a step says of those it depends on is what they are."""
    by_index = {step.index: step for step in task.steps if not step.is_item}
    for index, step in by_index.items():
        parents = [by_index[parent] for parent in graph.parents[index]]
        remaining = sum(parent.status not in STEP_ENDED for parent in parents)
        failed = sum(_by_failure(parent) for parent in parents)
        if step.deps_remaining != remaining:
            yield Said(
                f"step {step.title}: deps_remaining is {step.deps_remaining},"
                f" and {remaining} have not ended",
                step.title,
            )
        if step.deps_failed != failed:
            yield Said(
                f"step {step.title}: deps_failed is {step.deps_failed}, and {failed} failed",
                step.title,
            )
    for step in task.steps:
        on = step.wait if step.status == StepStatus.WAITING else None
        if isinstance(on, Child) and on.task_id and on.task_id not in task.children:
            yield Said(
                f"step {step.title} waits for task {on.task_id}, which it did not start", step.title
            )


def windows(task: AuditRows, graph: Graph) -> Iterator[Said]:
    """No window holds more than its places."""
    if task.task.status in TASK_ENDED:
        return
    limit = graph.max_parallel
    if limit is not None and task.task.places_taken > limit:
        yield Said(f"{task.task.places_taken} steps are in a window of {limit}")
    for step in task.steps:
        fanout = graph.steps[step.index].fanout
        if step.is_group and fanout is not None and fanout.concurrency is not None:
            held = sum(
                item.is_item and item.index == step.index and item.held for item in task.steps
            )
            count = step.items_placed - step.items_ended - held
            if count > fanout.concurrency:
                yield Said(
                    f"step {step.title}: {count} items in a window of {fanout.concurrency}",
                    step.title,
                )
