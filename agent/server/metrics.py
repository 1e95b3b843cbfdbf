"""`/metrics`: what the agent does and how it stands, in Prometheus's text format."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.core.clock import SECOND, Clock, to_iso
from agent.core.state_machine import StepStatus, TaskStatus
from agent.store.db.database import Connection
from agent.store.engine import budgets, reads, workers
from agent.store.read import health
from agent.tasks.commit.metrics import Histogram
from agent.tasks.rules.budgets import MICROUSD
from agent.tasks.worker.worker import Worker

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Standing:
    """How the database stands."""

    tasks: dict[str, int]
    steps: dict[str, int]
    unknowns: int
    workers: int
    queue_age_seconds: float
    approvals: int
    spent: tuple[int, int, int]
    """Tokens, millionths of a dollar and milliseconds that models have used on all days."""
    taken_today: tuple[int, int, int]
    """The same of this day's budget, with what is set aside for calls of unknown use."""


def standing(connection: Connection, clock: Clock) -> Standing:
    """Read how the database stands."""
    soonest = reads.next_wake_time(connection)
    today = str(to_iso(clock.now()))[:10]
    age = 0.0 if soonest is None else max(0.0, (clock.now() - soonest) / SECOND)
    return Standing(
        tasks=health.task_counts(connection),
        steps=health.open_step_counts(connection),
        unknowns=len(health.unknown_calls(connection)),
        workers=len(workers.living(connection)),
        queue_age_seconds=age,
        approvals=health.pending_approvals(connection),
        spent=health.spent(connection),
        taken_today=budgets.of_day(connection, today),
    )


class ServerMetrics:
    """Counts answers, and writes all figures down."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._requests: Counter[int] = Counter()

    def count_request(self, status: int) -> None:
        """Count an answer."""
        self._requests[status] += 1

    def exposition(self, now: Standing, events: Counter[str]) -> str:
        """Write everything in Prometheus's text format."""
        turns = self._worker.committer.metrics
        tasks = {status.value: now.tasks.get(status.value, 0) for status in TaskStatus}
        steps = {status.value: now.steps.get(status.value, 0) for status in StepStatus}
        lines = [
            *_family("agent_tasks", "gauge", "Tasks by status.", "status", tasks),
            *_family(
                "agent_steps",
                "gauge",
                "Steps by status, of tasks that have not ended.",
                "status",
                steps,
            ),
            *_single(
                "agent_queue_age_seconds",
                "gauge",
                "How long the task that is due first has been due.",
                now.queue_age_seconds,
            ),
            *_single(
                "agent_unknown_effects",
                "gauge",
                "Effects of unknown outcome that wait for a person (at most 100 are counted).",
                now.unknowns,
            ),
            *_single(
                "agent_approvals_waiting",
                "gauge",
                "Questions that wait for a person.",
                now.approvals,
            ),
            *_spending(now),
            *_single("agent_workers", "gauge", "Workers not known to be dead.", now.workers),
            *_single(
                "agent_attempts_in_flight",
                "gauge",
                "Attempts that this process runs.",
                self._worker.running,
            ),
            *_single(
                "agent_attempts_total",
                "counter",
                "Attempts that this process started.",
                self._worker.attempts_started,
            ),
            *_single(
                "agent_unknowns_total",
                "counter",
                "Effects whose outcome became unknown since this process began.",
                events["tool_call.unknown"],
            ),
            *_family(
                "agent_events_total",
                "counter",
                "Events that any process has committed since this one began.",
                "type",
                dict(sorted(events.items())),
            ),
            *_family(
                "agent_http_answers_total",
                "counter",
                "Answers of this API.",
                "status",
                {str(status): count for status, count in sorted(self._requests.copy().items())},
            ),
            *_single(
                "agent_event_loop_blocks_total",
                "counter",
                "How often the event loop was blocked for more than a second.",
                self._worker.blocks.count,
            ),
            *_single(
                "agent_event_loop_blocked_seconds_total",
                "counter",
                "How long those blocks took.",
                self._worker.blocks.seconds,
            ),
            *_histogram("agent_turn_seconds", "How long turns took.", turns.seconds),
            *_histogram(
                "agent_turn_batch", "Outcomes and new tasks that turns carried.", turns.carried
            ),
        ]
        return "\n".join(lines) + "\n"


def _spending(now: Standing) -> Iterable[str]:
    tokens, microusd, ms = now.spent
    yield from _single("agent_model_tokens_total", "counter", "Tokens that models used.", tokens)
    yield from _single(
        "agent_model_usd_total", "counter", "What models cost, in dollars.", microusd / MICROUSD
    )
    yield from _single(
        "agent_model_seconds_total", "counter", "Time that calls of models took.", ms / 1000
    )
    about = "taken of this day's budget (UTC), with what is set aside for calls of unknown use."
    tokens, microusd, ms = now.taken_today
    yield from _single("agent_model_tokens_today", "gauge", f"Tokens {about}", tokens)
    yield from _single("agent_spend_usd_today", "gauge", f"Dollars {about}", microusd / MICROUSD)
    yield from _single("agent_model_seconds_today", "gauge", f"Seconds {about}", ms / 1000)


def _single(name: str, kind: str, about: str, value: float) -> Iterable[str]:
    yield from _head(name, kind, about)
    yield f"{name} {_number(value)}"


def _family(
    name: str, kind: str, about: str, label: str, values: Mapping[str, int]
) -> Iterable[str]:
    yield from _head(name, kind, about)
    for key, value in values.items():
        yield f'{name}{{{label}="{key}"}} {_number(value)}'


def _histogram(name: str, about: str, found: Histogram) -> Iterable[str]:
    yield from _head(name, "histogram", about)
    counted = 0
    counts, total = list(found.counts), found.total
    for bound, count in zip((*found.bounds, float("inf")), counts, strict=True):
        counted += count
        limit = "+Inf" if bound == float("inf") else _number(bound)
        yield f'{name}_bucket{{le="{limit}"}} {counted}'
    yield f"{name}_sum {_number(total)}"
    yield f"{name}_count {counted}"


def _head(name: str, kind: str, about: str) -> Iterable[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 6))
