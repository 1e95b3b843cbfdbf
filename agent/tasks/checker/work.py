"""External workers: one open piece of work for each step that waits on one, one lease for each piece."""

from collections.abc import Iterator

from agent.store.db.database import Connection
from agent.store.read.audit import work as work_audit
from agent.tasks.checker.violation import Violation


def check_work(connection: Connection) -> Iterator[Violation]:
    """Check all work, its leases, and the snapshots of tasks."""
    yield from _check_leases(connection)
    yield from _check_steps(connection)
    yield from _check_results(connection)
    for task_id, snapshot_id in work_audit.bad_snapshots(connection):
        sentence = f"snapshot {snapshot_id} continues none of the task's earlier ones"
        yield Violation(sentence, task_id)
    for task_id, snapshots, events in work_audit.unannounced_snapshots(connection):
        yield Violation(f"it has {snapshots} snapshots and {events} events of them", task_id)


def _check_leases(connection: Connection) -> Iterator[Violation]:
    for lease_id, count in work_audit.shared_leases(connection):
        yield Violation(f"lease {lease_id} belongs to {count} pieces of work")
    for task_id, work_id, status in work_audit.broken_leases(connection):
        yield Violation(f"work {work_id} is {status}, and its lease says otherwise", task_id)
    for task_id, work_id in work_audit.unwatched_leases(connection):
        yield Violation(f"work {work_id} is leased, and nothing checks its lease", task_id)


def _check_steps(connection: Connection) -> Iterator[Violation]:
    for task_id, step_id, count in work_audit.several_open(connection):
        yield Violation(f"step {step_id} has {count} pieces of open work", task_id)
    for task_id, work_id, status, step_status in work_audit.unwanted_work(connection):
        sentence = f"work {work_id} is {status}, and its step, which is {step_status}"
        yield Violation(f"{sentence}, does not wait on it", task_id)
    for task_id, step in work_audit.missing_work(connection):
        yield Violation(f"step {step} waits on work that is not open", task_id, step)


def _check_results(connection: Connection) -> Iterator[Violation]:
    for task_id, step, attempt, most in work_audit.exceeded_attempts(connection):
        sentence = f"step {step} gave out its work in attempt {attempt} of {most}"
        yield Violation(sentence, task_id, step)
    for task_id, step, attempt, count in work_audit.repeated_attempts(connection):
        sentence = f"attempt {attempt} of step {step} ended {count} times without success"
        yield Violation(sentence, task_id, step)
    for task_id, step, status in work_audit.unfounded_results(connection):
        sentence = f"the work of step {step} was completed, and the step is {status}"
        yield Violation(sentence, task_id, step)
    for task_id, step in work_audit.unrecorded_beginnings(connection):
        sentence = f"the work of step {step} began, and its call was not recorded"
        yield Violation(sentence, task_id, step)
