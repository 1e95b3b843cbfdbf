"""The checker: does a database keep what the engine promises?

It only reads, some tasks at a time, each at one moment. Every violation is a sentence that names its
task and its step. Tests run it after every crash that they inject, and the simulator after every run;
people run it by `agent doctor --deep`.

Entry points: `violations` and `check`. It may import `rules`, `state` and the store. Its modules:

- `row_invariants`, `open_tasks`: rows of a task compared with each other and with its definition.
- `event_replay`: a task's events lead to its rows, and every move on the way was allowed.
- `ledger`: a task's calls, from intent to result.
- `approvals`: questions to people, and the answers. `budgets`: what calls of models used.
- `external_witness`: the database compared with what really happened outside.
- `conversations`: what agents and people said, appended once for each step that succeeded.
- `triggers`: schedules and watchers, their firings and tasks.
- `state`: values that outlive tasks, and the steps that wrote them.
- `work`: external workers, their leases, and the snapshots of tasks.
- `versions`: what a retry or a fork keeps and inherits, also under another version of its workflow.
- `secrets`: no secret is stored. `task_patterns`: tasks that differ only in ids and times are checked
  once. `agent_calls`: tools of agents that write to the database. `violation`: what is reported.

The nineteen promises, and where each is checked (`_check_database` is in this module):

1.  An acknowledged task exists after a restart: `external_witness`.
2.  Each task has ended or waits on something named: `open_tasks`.
3.  Nothing leaves a final state, and no attempt starts after it: `event_replay`; `row_invariants` for what
    an ended task leaves.
4.  A step starts only after the ends of its dependencies are recorded: `event_replay`;
    `row_invariants.check_dependencies`.
5.  A succeeded step has exactly one outcome and never executes again: `event_replay`; `external_witness`
    for effects; `conversations` for what it said; a task has at most one retry: `_check_database`; a kept step
    fits the version of its task: `versions`.
6.  Events have no gaps, commit with their change and lead to the rows: `event_replay`, on one snapshot.
7.  A write under an old claim changes nothing: `event_replay`, which finds moves from a state that the step
    had left and tokens without a claim; `_check_database` for commits of workers that were declared
    dead; tests/tasks/rescue/test_workers.py.
8.  Attempts that act never exceed the maximum: `event_replay` and `ledger`.
9.  Limits hold at every moment: `row_invariants` and `event_replay` for windows; `budgets` for budgets.
10. The intent is recorded before the effect; a call is unknown until a person or a check resolves it;
    a recorded result, also a final failure, is never sent again: `ledger`; `external_witness` for
    what really happened; `versions` for calls that a retry inherits; `agent_calls` for memories and tasks that agents write and start.
11. An approval is decided at most once, by an allowed person, for what was shown, and is not carried
    over to another input, or to changed steps: `approvals`; nor to another question of a newer version: `versions`.
12. One task per delivery: `_check_database`, by the keys of all tasks. One task per instant of a
    schedule and per watched item: `triggers`.
13. No secret given by reference is stored: `secrets`; tests/steps and tests/core/logs/test_logging.py for
    logs.
14. No process outlives its step: `row_invariants.check_processes`, on this machine;
    tests/crash/test_processes.py for signals.
15. Owner and claim turn are set on a running step and on no other: `row_invariants`.
16. The code of a step ends that step only. A step that may have taken its worker down runs isolated,
    one at a time, and one that runs in another process never does: `row_invariants`, `_check_database`;
    tests/steps/attempt/test_containment.py, tests/crash/test_isolation.py, tests/steps/executors.
17. Every instant of a schedule and every watched item has one recorded fate: the key of a firing is
    unique; `triggers` for what the rows say; `agent.triggers.schedules.fate_check`, which callers pass in, for
    instants without a fate; tests/simulation for items.
18. A step that succeeded has written each value that it sets exactly once, every version has one
    writer, and versions have no gaps: `state`.
19. A piece of external work has one lease at most, exactly while a worker has it, and a step waits on
    exactly one open piece; a call under another lease changes nothing: `work`.
"""

from collections.abc import Callable, Iterator, Sequence

from pydantic import ValidationError

from agent.store.db.database import Connection
from agent.store.read.audit import messages as message_audit
from agent.store.read.audit import task_reads as audit_reads
from agent.store.read.audit.rows import AuditRows
from agent.tasks.checker import (
    approvals,
    budgets,
    event_replay,
    ledger,
    open_tasks,
    row_invariants,
    state,
)
from agent.tasks.checker.agent_calls import check_agent_calls
from agent.tasks.checker.conversations import check_conversations
from agent.tasks.checker.external_witness import ExternalWitness
from agent.tasks.checker.secrets import check_secrets
from agent.tasks.checker.task_patterns import Patterns
from agent.tasks.checker.triggers import check_triggers
from agent.tasks.checker.versions import check_versions
from agent.tasks.checker.violation import Finding, Violation
from agent.tasks.checker.work import check_work
from agent.tasks.state.isolation import IS_ISOLATED
from agent.workflows.graph import Graph

__all__ = [
    "DatabaseCheck",
    "ExternalWitness",
    "Patterns",
    "Progress",
    "Violation",
    "check",
    "violations",
]

Progress = Callable[[int, str], None]
"""Receives how many tasks have been read, and the id of the last one; ids grow with creation."""


DatabaseCheck = Callable[[Connection], Iterator[Violation]]
"""A check of the whole database that needs more than this package may import."""


def check(
    connection: Connection,
    now: int | None = None,
    outside: ExternalWitness | None = None,
    further: Sequence[DatabaseCheck] = (),
) -> list[str]:
    """Return every violation as a sentence; a sound database has none."""
    violations_found = violations(connection, now, outside, further=further)
    return [str(violation) for violation in violations_found]


def violations(
    connection: Connection,
    now: int | None = None,
    outside: ExternalWitness | None = None,
    progress: Progress | None = None,
    since: int | None = None,
    patterns: Patterns | None = None,
    further: Sequence[DatabaseCheck] = (),
) -> Iterator[Violation]:
    """Yield every violation, in the order in which tasks are read.

    `now` is the instant that separates past wake times from future ones, for tests whose clock is not
    the database's. With `since`, tasks that ended before that instant are left out. `patterns` are
    those that are known to be sound. `further` are checks of layers above.
    """
    graphs: dict[tuple[str, int], Graph | None] = {}

    def graph_of(name: str, version: int) -> Graph | None:
        if (name, version) not in graphs:
            graphs[name, version] = _graph(audit_reads.graph_text(connection, name, version))
        return graphs[name, version]

    patterns = patterns or Patterns()
    for count, task in enumerate(audit_reads.collect(connection, since), 1):
        graph = graph_of(task.task.workflow_name, task.task.workflow_version)
        instant = task.read_at if now is None else now
        for finding in _check_task(task, graph, patterns, instant, outside):
            yield Violation(finding.sentence, task.task.id, finding.step)
        for finding in approvals.check_continuation(connection, task, graph):
            yield Violation(finding.sentence, task.task.id, finding.step)
        for finding in approvals.check_open_gates(connection, task, graph):
            yield Violation(finding.sentence, task.task.id, finding.step)
        for finding in check_versions(connection, task, graph, graph_of):
            yield Violation(finding.sentence, task.task.id, finding.step)
        if progress is not None:
            progress(count, task.task.id)
    yield from _check_database(connection)
    for check_further in further:
        yield from check_further(connection)
    if outside is not None:
        yield from outside.check_rest(connection)


def _graph(text: str | None) -> Graph | None:
    if text is None:
        return None
    try:
        return Graph.model_validate_json(text)
    except ValidationError:
        return None


def _check_task(
    task: AuditRows,
    graph: Graph | None,
    patterns: Patterns,
    now: int,
    outside: ExternalWitness | None,
) -> Iterator[Finding]:
    if graph is None:
        yield Finding("the definition that it started with is missing or cannot be read")
        return
    if graph.sets_state or any(call.action.startswith("state.") for call in task.calls):
        yield from state.check_steps(task, graph)
    pattern = patterns.of(task)
    has_right_steps = pattern is not None and patterns.is_sound(pattern)
    if has_right_steps and task.is_plain:
        return
    if not has_right_steps:
        findings = list(row_invariants.check_steps(task, graph))
        has_right_steps = not findings
        findings += row_invariants.check_rows(task)
        findings += open_tasks.check_open(task, now)
        if has_right_steps:
            # These look up steps by their index in the graph.
            findings += row_invariants.check_dependencies(task, graph)
            findings += row_invariants.check_windows(task, graph)
            findings += event_replay.check_events(task, graph)
            findings += approvals.check_gates(task, graph)
        if pattern is not None and not findings:
            patterns.learn(pattern)
        yield from findings
    elif task.approvals:
        yield from approvals.check_gates(task, graph)
    if has_right_steps:
        yield from budgets.check_budgets(task, graph)
    yield from row_invariants.check_processes(task, now)
    yield from ledger.check_calls(task)
    yield from approvals.check_questions(task)
    if outside is not None:
        yield from outside.check_calls(task)


def _check_database(connection: Connection) -> Iterator[Violation]:
    """Check the promises that no single task can show."""
    for key in audit_reads.stray_ledger_rows(connection):
        yield Violation(f"the ledger's row {key} belongs to no call")
    for key, count in audit_reads.duplicate_deliveries(connection):
        yield Violation(f"{key} was delivered once, and there are {count} tasks of it")
    for sentence in budgets.check_days(connection):
        yield Violation(sentence)
    for task_id, count in audit_reads.several_retries(connection):
        yield Violation(f"it was retried {count} times, and each retry does the same work", task_id)
    for task_id, step in message_audit.unsent_messages(connection):
        yield Violation(f"step {step} succeeded, and no message of it was sent", task_id, step)
    for task_id, before in message_audit.lost_origins(connection):
        yield Violation(f"it was not started where {before} was, which it comes from", task_id)
    for worker_id, count in audit_reads.isolated_together(connection, IS_ISOLATED):
        yield Violation(f"worker {worker_id} runs {count} isolated steps side by side")
    for worker_id, last, tx_number in audit_reads.commits_after_death(connection):
        yield Violation(
            f"worker {worker_id} was declared dead in transaction {last},"
            f" and has committed transaction {tx_number}"
        )
    yield from check_triggers(connection)
    yield from check_agent_calls(connection)
    yield from check_conversations(connection)
    yield from check_work(connection)
    yield from state.check_values(connection)
    yield from check_secrets(connection)
