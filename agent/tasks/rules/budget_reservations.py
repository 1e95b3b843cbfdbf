"""What calls of models may use: reserved before a call, replaced by its use after it.

A reservation commits with the intent of its call, under the locks of every budget that it counts
for: the step's own, its task's, those of all ancestor tasks and of their steps that wait for it, and
the day's. So no call is sent that exceeds a budget, however many run at once. A reservation that is
never replaced (a crash, a lost response) stays: an unknown call counts as spent.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.steps.types.call_records import CallResult, Intent, Reservation
from agent.store.db.database import Connection
from agent.store.engine import budget_rows as store
from agent.store.engine.reads import Rows
from agent.tasks.rules.budgets import budget_pause, limits_of, pause, policy_of
from agent.tasks.rules.locked_budget import LockedBudget
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.graph import Graph, Step


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not be made."""

    code: str
    message: str
    must_fail: bool
    """Whether its step fails; otherwise its task is paused."""
    task_id: str | None = None
    """The ancestor task whose budget is exhausted."""
    command: str | None = None
    """The arguments of `agent` that raise it."""


class BudgetLocks:
    """The budgets that the reservations of one transaction count for, all locked.

    A budget is known by its id: the task's id, or ``TASK_ID/STEP_INDEX`` for a step.
    """

    def __init__(
        self, tx: Connection, graphs: GraphCache, intents: Iterable[tuple[LockedTask, Intent]]
    ) -> None:
        self._budgets: dict[str, LockedBudget] = {}
        self._days: dict[str, LockedBudget] = {}
        self._chains: dict[str, list[str]] = {}
        """The budgets of each task and of its ancestors."""
        self._reserved: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._reserved_of_days: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        rows: dict[str, list[Any]] = {}
        reservations: dict[str, Reservation] = {}
        for locked, intent in intents:
            reservation = intent.reservation
            assert reservation is not None
            self._add_chain(tx, graphs, locked, rows)
            if reservation.step_budget is not None:
                index = int(reservation.step_budget.rpartition("/")[2])
                definition = locked.graph.steps[index]
                title = f"the budget of step {definition.name!r}"
                self._add_step(locked.task.id, definition, index, title, rows)
            reservations[reservation.day] = reservation
        self._lock(tx, rows)
        # Days after the other budgets, in order: all transactions lock in this order.
        for day in sorted(reservations):
            self._lock_day(tx, reservations[day])

    def _add_chain(
        self, tx: Connection, graphs: GraphCache, locked: LockedTask, rows: dict[str, list[Any]]
    ) -> None:
        """Add the budgets of a task, its ancestors, and the ancestors' steps that wait for it."""
        task = locked.task
        if task.id in self._chains:
            return
        chain = self._chains[task.id] = [task.id]
        self._add_task(task.id, "the task's budget", locked.graph, rows)
        for task_id, name, version, index in _ancestors(tx, locked):
            graph = graphs.get(tx, name, version)
            self._add_task(task_id, f"the budget of task {task_id}", graph, rows)
            chain.append(task_id)
            if index is not None and graph.steps[index].budget:
                title = f"the budget of step {graph.steps[index].name!r} of task {task_id}"
                budget_id = self._add_step(task_id, graph.steps[index], index, title, rows)
                # As for a call of that step itself, its whole task is paused.
                self._budgets[budget_id].task_id = task_id
                chain.append(budget_id)

    def _add_task(self, task_id: str, title: str, graph: Graph, rows: dict[str, list[Any]]) -> None:
        command = f"budget {task_id[-8:]}"
        policy = policy_of(graph.budget)
        self._budgets[task_id] = LockedBudget(title, policy, command, task_id=task_id)
        rows[task_id] = [task_id, task_id, *limits_of(graph.budget)]

    def _add_step(
        self, task_id: str, definition: Step, index: int, title: str, rows: dict[str, list[Any]]
    ) -> str:
        budget_id = f"{task_id}/{index}"
        command = f"budget {task_id[-8:]} --step {definition.name}"
        self._budgets[budget_id] = LockedBudget(title, policy_of(definition.budget), command)
        rows[budget_id] = [budget_id, task_id, *limits_of(definition.budget)]
        return budget_id

    def _lock(self, tx: Connection, rows: dict[str, list[Any]]) -> None:
        store.ensure(tx, rows.values())
        for budget_id, tokens_limit, microusd_limit, tokens, microusd in store.lock(tx, rows):
            budget = self._budgets[budget_id]
            budget.tokens_limit, budget.microusd_limit = tokens_limit, microusd_limit
            budget.tokens, budget.microusd = tokens, microusd

    def _lock_day(self, tx: Connection, reservation: Reservation) -> None:
        day = reservation.day
        tokens, microusd, ms = store.lock_day(tx, day)
        self._days[day] = LockedBudget(
            f"the day's budget ({day})",
            policy="",  # that of the task whose call is reserved
            command=None,
            tokens_limit=reservation.daily_tokens,
            microusd_limit=reservation.daily_microusd,
            ms_limit=reservation.daily_ms,
            tokens=tokens,
            microusd=microusd,
            ms=ms,
            source="[budget] in the configuration",
        )

    def reserve(self, locked: LockedTask, step: StepRow, intent: Intent) -> Refusal | None:
        """Reserve what a call may use; if a budget does not hold it, refuse and pause the task."""
        reservation = intent.reservation
        assert reservation is not None
        ids = [reservation.step_budget] if reservation.step_budget is not None else []
        ids += self._chains[locked.task.id]
        day = self._days[reservation.day]
        day.policy = policy_of(locked.graph.budget)
        budgets = [*(self._budgets[budget_id] for budget_id in ids), day]
        refusal = _refusal(budgets, reservation)
        if refusal is not None:
            data = {"action": intent.action, "reason": refusal.message}
            locked.emit("budget.exhausted", step, data)
            if not refusal.must_fail:
                why = budget_pause(refusal.message, refusal.command)
                pause(locked, why, refusal.task_id)
            return refusal
        for budget in budgets:
            budget.add(reservation)
        amounts = (reservation.tokens, reservation.microusd or 0)
        for budget_id in ids:
            _add(self._reserved[budget_id], amounts)
        _add(self._reserved_of_days[reservation.day], (*amounts, reservation.ms))
        locked.emit(
            "budget.reserved",
            step,
            {
                "call": intent.call_id,
                "tokens": reservation.tokens,
                "microusd": reservation.microusd,
                "ms": reservation.ms,
                "model": reservation.model,
            },
        )
        return None

    def write(self, tx: Connection) -> None:
        """Write what was reserved."""
        if self._reserved:
            reserved = sorted(self._reserved.items())
            store.add(tx, [[budget_id, 0, 0, *amounts] for budget_id, amounts in reserved])
            days = sorted(self._reserved_of_days.items())
            store.add_to_days(
                tx, [[day, 0, 0, tokens, microusd, 0, ms] for day, (tokens, microusd, ms) in days]
            )


def lock_budgets(
    tx: Connection,
    graphs: GraphCache,
    locked_tasks: Mapping[str, LockedTask],
    intents: Iterable[tuple[str, Intent | None]],
) -> BudgetLocks | None:
    """Lock the budgets of those intents, given by task id, that reserve something; usually none."""
    reserving = [
        (locked_tasks[task_id], intent)
        for task_id, intent in intents
        if intent is not None and intent.reservation is not None and task_id in locked_tasks
    ]
    return BudgetLocks(tx, graphs, reserving) if reserving else None


def _ancestors(tx: Connection, locked: LockedTask) -> Rows:
    return store.ancestors(tx, locked.task.id) if locked.task.depth > 0 else []


def _refusal(budgets: list[LockedBudget], reservation: Reservation) -> Refusal | None:
    for budget in budgets:
        if budget.microusd_limit is not None and reservation.microusd is None:
            name = reservation.section or reservation.model
            message = (
                f"{budget.title} caps money, and model {name} has no price: set"
                f" usd_per_million_in and usd_per_million_out in [models.{name}] of the configuration"
            )
            return Refusal("unpriced_model", message, must_fail=True)
        shortage = budget.shortage(reservation)
        if shortage is not None:
            must_fail = budget.policy == "fail"
            return Refusal(
                "budget_exhausted", shortage.message, must_fail, budget.task_id, shortage.command
            )
    return None


def replace_reservations(tx: Connection, results: Iterable[tuple[LockedTask, CallResult]]) -> None:
    """Replace the reservations of calls by what they used."""
    changes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    days: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    chains: dict[str, list[str]] = {}
    for locked, result in results:
        reservation, spend = result.reservation, result.spend
        if reservation is None:
            continue
        if result.latency_ms is not None:
            # The duration is known even if the provider does not report what the call used.
            _add(days[reservation.day], (0, 0, 0, 0, result.latency_ms, -reservation.ms))
        if spend is None:
            continue
        chain = chains.get(locked.task.id)
        if chain is None:
            chain = chains[locked.task.id] = _chain(tx, locked)
        change = (
            spend.tokens_in + spend.tokens_out,
            spend.microusd or 0,
            -reservation.tokens,
            -(reservation.microusd or 0),
        )
        for budget_id in chain:
            _add(changes[budget_id], change)
        if reservation.step_budget:
            _add(changes[reservation.step_budget], change)
        _add(days[reservation.day], change)
    if changes:
        store.add(tx, [[budget_id, *amounts] for budget_id, amounts in sorted(changes.items())])
    if days:
        store.add_to_days(tx, [[day, *amounts] for day, amounts in sorted(days.items())])


def _chain(tx: Connection, locked: LockedTask) -> list[str]:
    """Return the ids of the budgets of a task and its ancestors.

    Steps without a budget have no row; changing them has no effect.
    """
    chain = [locked.task.id]
    for task_id, _, _, index in _ancestors(tx, locked):
        chain += [task_id, f"{task_id}/{index}"]
    return chain


def _add(amounts: list[int], more: tuple[int, ...]) -> None:
    for place, amount in enumerate(more):
        amounts[place] += amount
