"""Budgets: their amounts are those of the calls of models, and no reservation exceeded a limit."""

from collections.abc import Iterator
from typing import Final

from agent.store.db.database import Connection
from agent.store.read.audit import task_reads as audit_reads
from agent.store.read.audit.rows import AuditRows, BudgetFacts, CallFacts, EventFacts
from agent.tasks.checker.violation import Finding
from agent.workflows.graph import Graph

_PARENTS: Final = frozenset({"workflow", "agent"})
"""Kinds of steps that have child tasks."""


def check_budgets(task: AuditRows, graph: Graph) -> Iterator[Finding]:
    """Check that each budget counts the use and reservations of its calls, and never exceeded its limit."""
    for budget in task.budgets:
        index = budget.step_index
        name = None if index is None else graph.steps[index].name
        title = "its budget" if name is None else f"the budget of step {name}"
        steps = [step for step in task.steps if index in (None, step.index)]
        own = {step.id for step in steps}
        # Budgets also count the use of child tasks; their calls are not among these.
        is_exact = not (task.children and any(step.kind in _PARENTS for step in steps))
        # The calls that a retry inherited were counted in the task that it retries.
        calls = [
            call for call in task.calls if call.model and call.step_id in own and call.attempt > 0
        ]
        yield from (
            Finding(f"{title} {sentence}", name)
            for sentence in _check_totals(budget, calls, is_exact=is_exact)
        )
        was_raised = any(event.type == "budget.raised" for event in task.events)
        if is_exact and not was_raised:
            reserved = (event for event in task.events if event.step_id in own)
            yield from (
                Finding(f"{title} {sentence}", name)
                for sentence in _check_reservations(budget, [*reserved], task, calls)
            )


def check_days(connection: Connection) -> Iterator[str]:
    """Check that all days together count at least the use of all calls; more where tasks were pruned."""
    for name, stored, counted in audit_reads.daily_sums(connection):
        if stored < counted:
            yield f"the budgets of days have {name} {stored}, and the calls of models have {counted}"


def _check_totals(budget: BudgetFacts, calls: list[CallFacts], *, is_exact: bool) -> Iterator[str]:
    is_known = [call.tokens_used is not None for call in calls]
    counted = {
        "tokens_used": sum(call.tokens_used or 0 for call in calls),
        "microusd_used": sum(call.microusd_used or 0 for call in calls),
        "tokens_reserved": sum(
            call.tokens_reserved or 0
            for call, known in zip(calls, is_known, strict=True)
            if not known
        ),
        "microusd_reserved": sum(
            call.microusd_reserved or 0
            for call, known in zip(calls, is_known, strict=True)
            if not known
        ),
    }
    for name, count in counted.items():
        stored = getattr(budget, name)
        if stored < count or (is_exact and stored != count):
            yield f"has {name} {stored}, and its calls have {count}"


def _check_reservations(
    budget: BudgetFacts, own: list[EventFacts], task: AuditRows, calls: list[CallFacts]
) -> Iterator[str]:
    """Check by the events that every reservation was within the limits."""
    by_id = {call.id: call for call in calls}
    tokens = microusd = 0
    numbers = {event.seq for event in own}
    for event in task.events:
        if event.type == "budget.reserved" and event.seq in numbers:
            document = event.document()
            tokens += document.get("tokens") or 0
            microusd += document.get("microusd") or 0
            for amount, limit, unit in (
                (tokens, budget.tokens_limit, "tokens"),
                (microusd, budget.microusd_limit, "millionths of a dollar"),
            ):
                if limit is not None and amount > limit:
                    yield f"of {limit} {unit} was at {amount} with event {event.seq}"
        elif event.type in ("tool_call.succeeded", "tool_call.failed", "tool_call.resolved"):
            document = event.document()
            call = by_id.get(str(document.get("call")))
            if call is not None and document.get("tokens_out") is not None:
                used = document["tokens_in"] + document["tokens_out"]
                tokens += used - (call.tokens_reserved or 0)
                microusd += (document.get("microusd") or 0) - (call.microusd_reserved or 0)
