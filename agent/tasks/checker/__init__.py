"""The checker: does a database keep what the engine promises?

It reads and changes nothing, some tasks at a time, each as it was at one moment. Every violation is
a sentence that names its task and its step. Tests run it after every crash they inject, the
simulator after every run; `agent doctor --deep` runs it for people.

The sixteen promises, and where each is checked: on *rows* held against each other (`upright`), by
*replay* of a task's events (`replay`) or of its calls (`ledger`), on what people were asked
(`questions`), on budgets (`spending`), against a witness *outside* (`outside`), or by named tests.

1.  An acknowledged task exists after restart: outside.
2.  Each task is terminal or waits on something named: rows (`upright.rows`).
3.  Nothing leaves a terminal state, no attempt starts after it: replay; rows for what it leaves.
4.  A step starts only after its dependencies' ends are recorded: replay; rows (`dependencies`).
5.  A succeeded step has exactly one outcome and never executes again: replay; outside for effects;
    one retry of a task, at most (`_whole`).
6.  Events are gapless, commit with their change and lead to the rows: replay, on one snapshot.
7.  A write under an old claim changes nothing: replay, where it would be a move from a state that
    the step had left, or a token that no claim accounts for; the turns of workers declared dead
    (`_whole`); tests/tasks/rescue/test_workers.py.
8.  Attempts that act never exceed the maximum: replay and ledger.
9.  Limits hold at every instant: rows and replay for windows; spending for budgets.
10. Intent before effect, unknown until a person or a check resolves it; a recorded result, a final
    failure too, is never sent again: ledger; outside for what really happened.
11. An approval is decided at most once, by someone allowed to, for what was shown, and not carried
    over to another input: questions.
12. One task per delivery: the keys of the whole database (`_whole`).
13. No secret by reference is written down: `secrets`; tests/steps and tests/core/test_logging.py for logs.
14. No process outlives its step: rows, on this machine; tests/crash/test_processes.py for signals.
15. Owner and claim turn are set on a running step and clear on every other: rows.
16. One step's code ends that step only: a step that may have taken its worker down runs isolated,
    one at a time (rows, `_whole`); tests/steps/attempt/test_containment.py, tests/crash/test_isolation.py.
"""

from collections.abc import Callable, Iterator

from pydantic import ValidationError

from agent.store.db.database import Connection
from agent.store.read import audit_reads
from agent.store.read.audit_rows import AuditRows
from agent.tasks.checker import approvals, budgets, ledger, replay, row_invariants
from agent.tasks.checker.external_witness import ExternalWitness
from agent.tasks.checker.secrets import secrets
from agent.tasks.checker.task_patterns import Patterns
from agent.tasks.checker.violation import Said, Violation
from agent.tasks.state.poison_isolation import IS_ISOLATED
from agent.workflows.graph import Graph

__all__ = ["ExternalWitness", "Patterns", "Progress", "Violation", "check", "violations"]

Progress = Callable[[int, str], None]
"""Receives how many tasks have been read, and the id of the last one; ids grow with creation."""


def check(
    connection: Connection, now: int | None = None, outside: ExternalWitness | None = None
) -> list[str]:
    """Return every violation as a sentence; none is how it should be."""
    return [str(violation) for violation in violations(connection, now, outside)]


def violations(
    connection: Connection,
    now: int | None = None,
    outside: ExternalWitness | None = None,
    progress: Progress | None = None,
    since: int | None = None,
    patterns: Patterns | None = None,
) -> Iterator[Violation]:
    """Yield every violation that the database shows, in the order in which it is read.

    `now` is the instant that tells a wake time in the past from one to come, for tests whose clock
    is not the database's. With `since`, tasks that ended before that instant are left out.
    `patterns` are those that are known to be sound.
    """
    graphs: dict[tuple[str, int], Graph | None] = {}
    patterns = patterns or Patterns()
    for count, task in enumerate(audit_reads.collect(connection, since), 1):
        key = (task.task.workflow_name, task.task.workflow_version)
        if key not in graphs:
            graphs[key] = _graph(audit_reads.graph_text(connection, *key))
        instant = task.read_at if now is None else now
        for said in _task(task, graphs[key], patterns, instant, outside):
            yield Violation(said.sentence, task.task.id, said.step)
        for said in approvals.carried_over(connection, task, graphs[key]):
            yield Violation(said.sentence, task.task.id, said.step)
        if progress is not None:
            progress(count, task.task.id)
    yield from _whole(connection)
    if outside is not None:
        yield from outside.rest(connection)


def _graph(text: str | None) -> Graph | None:
    if text is None:
        return None
    try:
        return Graph.model_validate_json(text)
    except ValidationError:
        return None


def _task(
    task: AuditRows,
    graph: Graph | None,
    patterns: Patterns,
    now: int,
    outside: ExternalWitness | None,
) -> Iterator[Said]:
    if graph is None:
        yield Said("the definition that it started with is missing or cannot be read")
        return
    pattern = patterns.of(task)
    is_whole = pattern is not None and patterns.is_sound(pattern)
    if is_whole and task.is_plain:
        return
    if not is_whole:
        shape = list(row_invariants.shape(task, graph))
        is_whole = not shape
        found = shape + list(row_invariants.rows(task, now))
        if is_whole:
            # What follows looks up steps by their places in the graph.
            found += row_invariants.dependencies(task, graph)
            found += row_invariants.windows(task, graph)
            found += replay.events(task, graph)
            found += approvals.gates(task, graph)
        if pattern is not None and not found:
            patterns.learn(pattern)
        yield from found
    elif task.approvals:
        yield from approvals.gates(task, graph)
    if is_whole:
        yield from budgets.budgets(task, graph)
    yield from row_invariants.processes(task, now)
    yield from ledger.calls(task)
    yield from approvals.questions(task)
    if outside is not None:
        yield from outside.calls(task)


def _whole(connection: Connection) -> Iterator[Violation]:
    """Tell what no task alone can show."""
    for key in audit_reads.outcomes_without_calls(connection):
        yield Violation(f"the ledger's row {key} belongs to no call")
    for key, count in audit_reads.duplicate_deliveries(connection):
        yield Violation(f"{key} was delivered once, and there are {count} tasks of it")
    for sentence in budgets.days(connection):
        yield Violation(sentence)
    for task_id, count in audit_reads.tasks_retried_twice(connection):
        yield Violation(f"it was retried {count} times, and each does the same work", task_id)
    for worker_id, count in audit_reads.isolated_together(connection, IS_ISOLATED):
        yield Violation(f"worker {worker_id} runs {count} isolated steps side by side")
    for worker_id, last, turn in audit_reads.workers_active_after_death(connection):
        yield Violation(
            f"worker {worker_id} was declared dead in turn {last}, and has committed turn {turn}"
        )
    yield from secrets(connection)
