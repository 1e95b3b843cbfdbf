"""What tasks and steps may use of models: set aside before a call, settled after it.

A reservation commits with the intent of its call, under the locks of every budget that it counts for:
the step's own, its task's, those of all tasks above it and of their steps that wait for it, and the
day's. So no call is sent that a budget does not hold, however many run at once. What is never settled
(a crash, an answer that did not come) stays set aside: an unknown counts as spent.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.core.clock import SECOND
from agent.core.state_machine import TaskStatus
from agent.steps.types.call_records import CallResult, Intent, Reservation
from agent.store.db.database import Connection
from agent.store.engine import budgets as store
from agent.store.engine.reads import Rows
from agent.tasks.state import transitions
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.locked_task import FamilyPause, LockedTask
from agent.tasks.state.pauses import Pause, PauseKind
from agent.tasks.state.rows import StepRow
from agent.workflows.durations import format_duration
from agent.workflows.graph import Graph, Step

MICROUSD: Final = 1_000_000
_REASON: Final = "budget: "
"""What such a pause's reason begins with: workers before schema 0006 know a budget's pause by it."""
_SHORTER_ANSWER: Final = "a smaller `max_tokens`"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call may not be made."""

    code: str
    message: str
    must_fail: bool
    """Whether its step fails; otherwise its task is paused."""
    task_id: str | None = None
    """Whose budget it is, when that is a task above."""
    command: str | None = None
    """The arguments of `agent` that raise it for a paused task; None for a day's."""


@dataclass(slots=True)
class _Budget:
    """One budget, locked: its limits and what is taken of it, with what this transaction takes."""

    title: str
    policy: str
    command: str | None
    """What raises it for a task that is paused; None for a day's."""
    tokens_limit: int | None = None
    microusd_limit: int | None = None
    ms_limit: int | None = None
    tokens: int = 0
    microusd: int = 0
    ms: int = 0
    task_id: str | None = None
    place: str = "`budget` in the workflow"
    """Where it is set."""

    def advice(self, option: str, less: str, *, fits_a_whole_one: bool) -> str:
        """Say what a person may do; a task that has failed takes no more.

        `option` raises a task's budget; with `less` of its step a call may fit a day's.
        """
        if self.policy == "fail":
            return f"{self.place} sets it"
        if self.command is not None:
            return f"`agent {self.command} {option}` raises it"
        if fits_a_whole_one:
            return f"it may go on tomorrow (`agent resume`); {self.place} sets it"
        return f"no day has room for it: give it {less}, or raise {self.place}"

    def problem(self, asked: Reservation) -> tuple[str, str] | None:
        """Say why a reservation does not fit, and which option of `agent budget` makes room."""
        if self.tokens_limit is not None and self.tokens + asked.tokens > self.tokens_limit:
            left = max(self.tokens_limit - self.tokens, 0)
            fits = asked.tokens <= self.tokens_limit
            advice = self.advice("--tokens N", _SHORTER_ANSWER, fits_a_whole_one=fits)
            message = (
                f"{self.title} allows {self.tokens_limit} tokens, {left} are left, and the next"
                f" call may use up to {asked.tokens}; {advice}"
            )
            return message, "--tokens N"
        money = asked.microusd or 0
        if self.microusd_limit is not None and self.microusd + money > self.microusd_limit:
            left = max(self.microusd_limit - self.microusd, 0)
            fits = money <= self.microusd_limit
            advice = self.advice("--usd X", _SHORTER_ANSWER, fits_a_whole_one=fits)
            message = (
                f"{self.title} allows {dollars(self.microusd_limit)}, {dollars(left)} is left, and"
                f" the next call may cost up to {dollars(money)}; {advice}"
            )
            return message, "--usd X"
        if self.ms_limit is not None and self.ms + asked.ms > self.ms_limit:
            left = max(self.ms_limit - self.ms, 0)
            fits = asked.ms <= self.ms_limit
            advice = self.advice("", "a shorter `timeout`", fits_a_whole_one=fits)
            message = (
                f"{self.title} allows models {_span(self.ms_limit)}, {_span(left)} is left, and the"
                f" next call may take up to {_span(asked.ms)}, its timeout; {advice}"
            )
            return message, ""
        return None


class BudgetLocks:
    """The budgets that the reservations of one transaction count for."""

    def __init__(
        self, tx: Connection, graphs: GraphCache, wanted: Iterable[tuple[LockedTask, Intent]]
    ) -> None:
        self._chains: dict[str, list[str]] = {}
        self._budgets: dict[str, _Budget] = {}
        self._days: dict[str, _Budget] = {}
        self._taken: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._taken_of_days: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        rows: dict[str, list[Any]] = {}
        days: dict[str, Reservation] = {}
        for locked, intent in wanted:
            assert intent.reservation is not None
            self._add_chain(tx, graphs, locked, rows)
            if intent.reservation.step_budget is not None:
                index = int(intent.reservation.step_budget.rpartition("/")[2])
                definition = locked.graph.steps[index]
                title = f"the budget of step {definition.name!r}"
                self._add_step(locked.task.id, definition, index, title, rows)
            days[intent.reservation.day] = intent.reservation
        store.ensure(tx, rows.values())
        for name, tokens_limit, microusd_limit, tokens, microusd in store.lock(tx, rows):
            found = self._budgets[name]
            found.tokens_limit, found.microusd_limit = tokens_limit, microusd_limit
            found.tokens, found.microusd = tokens, microusd
        for day in sorted(days):
            taken = store.lock_day(tx, day)
            asked = days[day]
            place = "[budget] in the configuration"
            title = f"the day's budget ({day})"
            limits = (asked.daily_tokens, asked.daily_microusd, asked.daily_ms)
            self._days[day] = _Budget(title, "", None, *limits, *taken, place=place)

    def _add_chain(
        self, tx: Connection, graphs: GraphCache, locked: LockedTask, rows: dict[str, list[Any]]
    ) -> None:
        task = locked.task
        if task.id in self._chains:
            return
        chain = self._chains[task.id] = [task.id]
        self._add_task(task.id, "the task's budget", locked.graph, rows)
        for task_id, name, version, index in _above(tx, locked):
            graph = graphs.get(tx, name, version)
            self._add_task(task_id, f"the budget of task {task_id}", graph, rows)
            chain.append(task_id)
            if index is not None and graph.steps[index].budget:
                title = f"the budget of step {graph.steps[index].name!r} of task {task_id}"
                step = self._add_step(task_id, graph.steps[index], index, title, rows)
                # Its whole task is paused then, as for a call of its own.
                self._budgets[step].task_id = task_id
                chain.append(step)

    def _add_task(self, task_id: str, title: str, graph: Graph, rows: dict[str, list[Any]]) -> None:
        command = f"budget {task_id[-8:]}"
        self._budgets[task_id] = _Budget(title, policy_of(graph.budget), command, task_id=task_id)
        rows[task_id] = [task_id, task_id, *limits_of(graph.budget)]

    def _add_step(
        self, task_id: str, definition: Step, index: int, title: str, rows: dict[str, list[Any]]
    ) -> str:
        name = f"{task_id}/{index}"
        command = f"budget {task_id[-8:]} --step {definition.name}"
        self._budgets[name] = _Budget(title, policy_of(definition.budget), command)
        rows[name] = [name, task_id, *limits_of(definition.budget)]
        return name

    def reserve(self, locked: LockedTask, step: StepRow, intent: Intent) -> Refusal | None:
        """Set aside what a call may use, or say why not and pause its task."""
        asked = intent.reservation
        assert asked is not None
        names = [asked.step_budget] if asked.step_budget is not None else []
        names += self._chains[locked.task.id]
        day = self._days[asked.day]
        day.policy = policy_of(locked.graph.budget)
        concerned = [*(self._budgets[name] for name in names), day]
        refusal = _refused(concerned, asked)
        if refusal is not None:
            _tell_refusal(locked, step, intent, refusal)
            return refusal
        for budget in concerned:
            budget.tokens += asked.tokens
            budget.microusd += asked.microusd or 0
            budget.ms += asked.ms
        amounts = (asked.tokens, asked.microusd or 0)
        for name in names:
            _add_to(self._taken[name], amounts)
        _add_to(self._taken_of_days[asked.day], (*amounts, asked.ms))
        data = {"call": intent.call_id, "tokens": asked.tokens, "microusd": asked.microusd}
        locked.emit("budget.reserved", step, {**data, "ms": asked.ms, "model": asked.model})
        return None

    def write(self, tx: Connection) -> None:
        """Write what was set aside."""
        if self._taken:
            store.add(tx, [[name, 0, 0, *taken] for name, taken in sorted(self._taken.items())])
            days = sorted(self._taken_of_days.items())
            store.add_to_days(
                tx, [[day, 0, 0, tokens, microusd, 0, ms] for day, (tokens, microusd, ms) in days]
            )


def open_purse(
    tx: Connection,
    graphs: GraphCache,
    locked_tasks: Mapping[str, LockedTask],
    intents: Iterable[tuple[str, Intent | None]],
) -> BudgetLocks | None:
    """Lock the budgets of the calls of models that are to be intended; mostly there are none."""
    wanted = [
        (locked_tasks[task_id], intent)
        for task_id, intent in intents
        if intent is not None and intent.reservation is not None and task_id in locked_tasks
    ]
    return BudgetLocks(tx, graphs, wanted) if wanted else None


def _above(tx: Connection, locked: LockedTask) -> Rows:
    return store.ancestors(tx, locked.task.id) if locked.task.depth > 0 else []


def _refused(concerned: list[_Budget], asked: Reservation) -> Refusal | None:
    for budget in concerned:
        if budget.microusd_limit is not None and asked.microusd is None:
            name = asked.section or asked.model
            message = (
                f"{budget.title} caps money, and model {name} has no price: set"
                f" usd_per_million_in and usd_per_million_out in [models.{name}] of the configuration"
            )
            return Refusal("unpriced_model", message, must_fail=True)
        problem = budget.problem(asked)
        if problem is not None:
            message, option = problem
            must_fail = budget.policy == "fail"
            command = None if budget.command is None else f"{budget.command} {option}"
            return Refusal("budget_exhausted", message, must_fail, budget.task_id, command)
    return None


def _tell_refusal(locked: LockedTask, step: StepRow, intent: Intent, refusal: Refusal) -> None:
    data = {"action": intent.action, "reason": refusal.message}
    locked.emit("budget.exhausted", step, data)
    if not refusal.must_fail:
        pause(locked, paused_for(refusal.message, refusal.command), refusal.task_id)


def paused_for(reason: str, command: str | None) -> Pause:
    """Return the pause for a budget that is used up; `command` raises it."""
    return Pause(PauseKind.BUDGET, _REASON + reason, command)


def pause(locked: LockedTask, why: Pause, budget_of: str | None = None) -> None:
    """Pause a task for a budget, unless it is paused already; its family is paused after it.

    The budget is its own, or that of a task above.
    """
    task = locked.task
    if task.status == TaskStatus.RUNNING:
        transitions.pause_task(locked, why)
        locked.pauses.append(FamilyPause(budget_of or task.id, task.id, why))


def settle(tx: Connection, settled: Iterable[tuple[LockedTask, CallResult]]) -> None:
    """Count what calls used instead of what was set aside for them."""
    changes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    days: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    chains: dict[str, list[str]] = {}
    for locked, result in settled:
        asked, spend = result.reservation, result.spend
        if asked is None:
            continue
        if result.latency_ms is not None:
            # How long it took is known even where the provider does not say what it used.
            _add_to(days[asked.day], (0, 0, 0, 0, result.latency_ms, -asked.ms))
        if spend is None:
            continue
        task = locked.task
        if task.id not in chains:
            chains[task.id] = [task.id]
            for task_id, _, _, index in _above(tx, locked):
                # Steps without a budget have no row to change.
                chains[task.id] += [task_id, f"{task_id}/{index}"]
        change = (
            spend.tokens_in + spend.tokens_out,
            spend.microusd or 0,
            -asked.tokens,
            -(asked.microusd or 0),
        )
        names = chains[task.id] + ([asked.step_budget] if asked.step_budget else [])
        for name in names:
            _add_to(changes[name], change)
        _add_to(days[asked.day], change)
    if changes:
        store.add(tx, [[name, *amounts] for name, amounts in sorted(changes.items())])
    if days:
        store.add_to_days(tx, [[day, *amounts] for day, amounts in sorted(days.items())])


def raise_limits(
    tx: Connection, locked: LockedTask, step: str | None, tokens: int | None, microusd: int | None
) -> None:
    """Set the limits of a task's or a step's budget anew."""
    task = locked.task
    name, definition = task.id, locked.graph.budget
    if step is not None:
        index = locked.graph.index_of[step]
        name, definition = f"{task.id}/{index}", locked.graph.steps[index].budget
    store.ensure(tx, [[name, task.id, *limits_of(definition)]])
    store.set_limits(tx, name, tokens, microusd)
    data: dict[str, Any] = {"tokens": tokens, "microusd": microusd, "step": step}
    locked.emit("budget.raised", None, {key: value for key, value in data.items() if value})


def raise_time(tx: Connection, locked: LockedTask, seconds: float) -> int:
    """Set a task's time anew, counted from its start; return its new deadline."""
    ((started_at,),) = tx.query("SELECT started_at FROM tasks WHERE id = :id", id=locked.task.id)
    locked.task.deadline = int(started_at or locked.now) + int(seconds * SECOND)
    locked.emit("budget.raised", None, {"seconds": seconds})
    return locked.task.deadline


def raise_step_time(tx: Connection, locked: LockedTask, step: str, seconds: float) -> int:
    """Set the time of a step anew, counted from its first start; return when it is over then.

    Its next attempt goes by what was told last.
    """
    started_at = store.step_started_at(tx, locked.task.id, locked.graph.index_of[step])
    locked.emit("budget.raised", None, {"seconds": seconds, "step": step})
    return (started_at or locked.now) + int(seconds * SECOND)


def pauses_when_time_is_over(graph: Graph) -> bool:
    """Whether a task's time is a budget that pauses it, and no limit that fails it."""
    budget = graph.budget
    return bool(budget and budget.get("time_seconds") and policy_of(budget) == "pause")


def policy_of(budget: dict[str, Any] | None) -> str:
    """Return what happens when a budget is used up: `pause` or `fail`."""
    return str((budget or {}).get("on_exhausted", "pause"))


def limits_of(budget: dict[str, Any] | None) -> tuple[int | None, int | None]:
    """Return the limits of tokens and money that a definition sets."""
    found = budget or {}
    usd = found.get("usd")
    return found.get("tokens"), None if usd is None else round(usd * MICROUSD)


def dollars(microusd: int) -> str:
    """Write money for people."""
    text = f"{microusd / MICROUSD:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part.ljust(2, '0')}"


def _span(ms: int) -> str:
    return format_duration(ms / 1000)


def _add_to(amounts: list[int], more: tuple[int, ...]) -> None:
    for place, amount in enumerate(more):
        amounts[place] += amount
