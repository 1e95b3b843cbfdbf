"""Budgets of models: what is taken is what the calls say, and nothing was asked for beyond."""

from collections.abc import Iterator
from typing import Final

from agent.store.db.database import Connection
from agent.store.read import audit_reads
from agent.store.read.audit_rows import AuditRows, BudgetFacts, CallFacts, EventFacts
from agent.tasks.checker.violation import Said
from agent.workflows.graph import Graph

_PARENTS: Final = frozenset({"workflow", "agent"})
"""Kinds of steps that have child tasks."""


def budgets(task: AuditRows, graph: Graph) -> Iterator[Said]:
    """Each budget holds what its calls used and may still use, and held at every reservation."""
    for budget in task.budgets:
        index = budget.step_index
        name = None if index is None else graph.steps[index].name
        title = "its budget" if name is None else f"the budget of step {name}"
        steps = [step for step in task.steps if index in (None, step.index)]
        own = {step.id for step in steps}
        # What children used counts as well, and stands in their own rows.
        is_exact = not (task.children and any(step.kind in _PARENTS for step in steps))
        # Calls that a retry has taken over were paid for by the task that it retries.
        calls = [
            call for call in task.calls if call.model and call.step_id in own and call.attempt > 0
        ]
        yield from (
            Said(f"{title} {sentence}", name)
            for sentence in _totals(budget, calls, is_exact=is_exact)
        )
        was_raised = any(event.type == "budget.raised" for event in task.events)
        if is_exact and not was_raised:
            reserved = (event for event in task.events if event.step_id in own)
            yield from (
                Said(f"{title} {sentence}", name)
                for sentence in _reservations(budget, [*reserved], task, calls)
            )


def days(connection: Connection) -> Iterator[str]:
    """All days together hold what all calls used and may still use; more where tasks are gone."""
    for name, stored, counted in audit_reads.daily_sums(connection):
        if stored < counted:
            yield f"the days' budgets say {name} {stored}, and the calls of models {counted}"


def _totals(budget: BudgetFacts, calls: list[CallFacts], *, is_exact: bool) -> Iterator[str]:
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
            yield f"says {name} {stored}, and its calls {count}"


def _reservations(
    budget: BudgetFacts, own: list[EventFacts], task: AuditRows, calls: list[CallFacts]
) -> Iterator[str]:
    """Follow the log: whenever something was set aside there was room for it."""
    asked = {call.id: call for call in calls}
    tokens = microusd = 0
    numbers = {event.seq for event in own}
    for event in task.events:
        if event.type == "budget.reserved" and event.seq in numbers:
            told = event.details()
            tokens += told.get("tokens") or 0
            microusd += told.get("microusd") or 0
            for taken, limit, locked in (
                (tokens, budget.tokens_limit, "tokens"),
                (microusd, budget.microusd_limit, "millionths of a dollar"),
            ):
                if limit is not None and taken > limit:
                    yield f"of {limit} {locked} was at {taken} with event {event.seq}"
        elif event.type in ("tool_call.succeeded", "tool_call.failed", "tool_call.resolved"):
            told = event.details()
            call = asked.get(str(told.get("call")))
            if call is not None and told.get("tokens_out") is not None:
                tokens += told["tokens_in"] + told["tokens_out"] - (call.tokens_reserved or 0)
                microusd += (told.get("microusd") or 0) - (call.microusd_reserved or 0)
