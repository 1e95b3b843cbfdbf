"""`/metrics` in Prometheus's text format."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from agent import __version__
from agent.core.clock import SECOND, Clock, to_iso
from agent.core.money import MICROUSD
from agent.core.state_machine import FiringStatus, StepStatus, TaskStatus
from agent.server.monitoring import host_metrics
from agent.server.monitoring.exposition import family, histogram, single
from agent.server.monitoring.host_metrics import HostGauges
from agent.store.db.database import Connection
from agent.store.engine import budget_rows, firing_rows, reads, trigger_rows, workers
from agent.store.read import health
from agent.tasks.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class DatabaseGauges:
    """Gauges read from the database at one scrape."""

    tasks: dict[str, int]
    steps: dict[str, int]
    unknowns: int
    workers: int
    queue_age_seconds: float
    approvals: int
    spent: tuple[int, int, int]
    """Tokens, millionths of a dollar and milliseconds that models have used in total."""
    used_today: tuple[int, int, int]
    """The same for the present day's budget, reservations for calls of unknown use included."""
    firings: dict[str, int]
    schedule_lag_seconds: float
    watcher_failures: dict[str, int]
    """Failures in a row, of watchers that fail."""


def read_gauges(
    connection: Connection, clock: Clock, most_tasks: int | None = None
) -> DatabaseGauges:
    """Read the gauges; tasks of each status are counted up to a bound, if there is one."""
    next_wake_time = reads.next_wake_time(connection)
    today = str(to_iso(clock.now()))[:10]
    age = 0.0 if next_wake_time is None else max(0.0, (clock.now() - next_wake_time) / SECOND)
    return DatabaseGauges(
        tasks=(
            health.task_counts(connection)
            if most_tasks is None
            else health.task_counts_up_to(connection, most_tasks)
        ),
        steps=health.open_step_counts(connection),
        unknowns=len(health.unknown_calls(connection)),
        workers=len(workers.live_workers(connection)),
        queue_age_seconds=age,
        approvals=health.pending_approvals(connection),
        spent=health.spent(connection),
        used_today=budget_rows.of_day(connection, today),
        firings=firing_rows.counts(connection),
        schedule_lag_seconds=_lag_seconds(connection, clock),
        watcher_failures=trigger_rows.failing(connection),
    )


def _lag_seconds(connection: Connection, clock: Clock) -> float:
    """Return how long the most overdue schedule has been due."""
    next_at = trigger_rows.next_time(connection, "schedule")
    return 0.0 if next_at is None else max(0.0, (clock.now() - next_at) / SECOND)


class ServerMetrics:
    """Counts responses, and writes all metrics."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._responses: Counter[int] = Counter()

    def count_response(self, status: int) -> None:
        """Count a response."""
        self._responses[status] += 1

    def exposition(self, gauges: DatabaseGauges, host: HostGauges, events: Counter[str]) -> str:
        """Write all metrics in Prometheus's text format."""
        lines = [
            *family(
                "agent_build_info", "gauge", "This program's version.", "version", {__version__: 1}
            ),
            *_task_lines(gauges),
            *_spending_lines(gauges),
            *_trigger_lines(gauges),
            *_event_lines(events),
            *host_metrics.lines(host),
            *self._process_lines(),
        ]
        return "\n".join(lines) + "\n"

    def _process_lines(self) -> Iterable[str]:
        worker, commits = self._worker, self._worker.committer.metrics
        yield from family(
            "agent_firings_total",
            "counter",
            "Fates that this process gave to schedules' instants and watchers' items.",
            "status",
            {status.value: worker.firings.counts[status] for status in FiringStatus},
        )
        yield from single(
            "agent_attempts_in_flight", "gauge", "Attempts that this process runs.", worker.running
        )
        yield from single(
            "agent_slots",
            "gauge",
            "Attempts that this process may run at the same time.",
            worker.settings.slots,
        )
        yield from single(
            "agent_attempts_total",
            "counter",
            "Attempts that this process started.",
            worker.attempts_started,
        )
        yield from family(
            "agent_http_responses_total",
            "counter",
            "Responses of this API.",
            "code",
            {str(status): count for status, count in sorted(self._responses.copy().items())},
        )
        yield from single(
            "agent_event_loop_blocks_total",
            "counter",
            "How often the event loop was blocked for more than a second.",
            worker.blocks.count,
        )
        yield from single(
            "agent_event_loop_blocked_seconds_total",
            "counter",
            "How long those blocks took.",
            worker.blocks.seconds,
        )
        yield from histogram(
            "agent_commit_duration_seconds", "How long the worker's commits took.", commits.seconds
        )
        yield from histogram(
            "agent_commit_batch_size",
            "Outcomes, new tasks and calls of external workers per commit.",
            commits.carried,
        )


def _task_lines(gauges: DatabaseGauges) -> Iterable[str]:
    tasks = {status.value: gauges.tasks.get(status.value, 0) for status in TaskStatus}
    steps = {status.value: gauges.steps.get(status.value, 0) for status in StepStatus}
    yield from family("agent_tasks", "gauge", "Tasks by status.", "status", tasks)
    yield from family(
        "agent_steps", "gauge", "Steps by status, of tasks that have not ended.", "status", steps
    )
    yield from single(
        "agent_queue_age_seconds",
        "gauge",
        "How long the oldest due task has been due.",
        gauges.queue_age_seconds,
    )
    yield from single(
        "agent_unknown_effects",
        "gauge",
        "Effects with an unknown result that wait for a person (at most 100 are counted).",
        gauges.unknowns,
    )
    yield from single(
        "agent_approvals_waiting", "gauge", "Questions that wait for a person.", gauges.approvals
    )
    yield from single("agent_workers", "gauge", "Workers not known to be dead.", gauges.workers)


def _event_lines(events: Counter[str]) -> Iterable[str]:
    yield from single(
        "agent_unknowns_total",
        "counter",
        "Effects whose result became unknown since this process started.",
        events["tool_call.unknown"],
    )
    yield from family(
        "agent_events_total",
        "counter",
        "Events that all processes have committed since this one started.",
        "type",
        dict(sorted(events.items())),
    )


def _trigger_lines(gauges: DatabaseGauges) -> Iterable[str]:
    yield from single(
        "agent_schedule_lag_seconds",
        "gauge",
        "How long the most overdue schedule has been due.",
        gauges.schedule_lag_seconds,
    )
    firings = {status.value: gauges.firings.get(status.value, 0) for status in FiringStatus}
    yield from family(
        # No counter: queued firings start, and old ones are pruned.
        "agent_firings",
        "gauge",
        "Recorded fates of schedules' instants and watchers' items; a range counts once.",
        "status",
        firings,
    )
    yield from family(
        "agent_watcher_failures",
        "gauge",
        "Failed polls in a row, of watchers that fail.",
        "trigger",
        gauges.watcher_failures,
    )


def _spending_lines(gauges: DatabaseGauges) -> Iterable[str]:
    tokens, microusd, ms = gauges.spent
    yield from single("agent_model_tokens_total", "counter", "Tokens that models used.", tokens)
    yield from single(
        "agent_model_usd_total", "counter", "What models cost, in dollars.", microusd / MICROUSD
    )
    yield from single(
        "agent_model_seconds_total", "counter", "Time that calls of models took.", ms / 1000
    )
    about = "used of this day's budget (UTC), reservations for calls of unknown use included."
    tokens, microusd, ms = gauges.used_today
    yield from single("agent_model_tokens_today", "gauge", f"Tokens {about}", tokens)
    yield from single("agent_spend_usd_today", "gauge", f"Dollars {about}", microusd / MICROUSD)
    yield from single("agent_model_seconds_today", "gauge", f"Seconds {about}", ms / 1000)
