"""How many attempts a worker may start with its next transaction."""

from agent.config.execution import EngineSettings
from agent.core.clock import SECOND, Clock
from agent.tasks.commit.batch import Batch, TxResult
from agent.tasks.commit.pipeline import InFlightTx
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.state.isolation import Isolation
from agent.tasks.worker.answering import Answering
from agent.tasks.worker.attempts import Attempt, Attempts
from agent.tasks.worker.large_values.external_values import ExternalValues

_DUE_TASKS_OF_A_POLL = 16
"""So that timers fire and deadlines pass while no slot is free."""


class Slots:
    """Counts running steps against the slots, and isolates a step whose process died."""

    def __init__(
        self,
        settings: EngineSettings,
        attempts: Attempts,
        external: ExternalValues,
        clock: Clock,
        answering: Answering,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._external = external
        self._clock = clock
        self._answering = answering
        self._isolation = Isolation(settings.solo_seconds)

    def apply(self, settings: EngineSettings) -> None:
        """Count against changed settings from now on; running steps beyond fewer slots go on."""
        self._settings = settings

    def capacity(
        self,
        batch: Batch,
        unconfirmed: InFlightTx | None = None,
        *,
        must_query_due: bool = False,
        is_stopping: bool = False,
    ) -> ClaimCapacity:
        """Return how much a batch may claim, behind a transaction that is not confirmed yet."""
        if self._attempts.isolated:
            self._release_returned()
        running = len(self._attempts) - len(batch.completions) + self._external.more_running
        running += self._attempts.ending_early
        if unconfirmed is not None:
            running += unconfirmed.more_running
        slots = min(self._settings.slots - running + self._external.ended, self._settings.batch)
        # What has ended without a record of it counts as a possible cause of the next crash.
        running -= self._external.returned
        slots, may_isolate = self._isolation.limit(slots, running, self._clock.monotonic())
        if is_stopping:
            slots = 0
        return ClaimCapacity(
            slots=max(slots, 0),
            running=running,
            lease_us=int(self._settings.lease_seconds * SECOND),
            may_isolate=may_isolate,
            max_depth=self._settings.task_depth,
            most_due=0
            if is_stopping
            else max(slots, _DUE_TASKS_OF_A_POLL if must_query_due else 0),
            must_query_due=must_query_due,
            answering=self._answering.time(),
        )

    def note_commit(self, result: TxResult) -> None:
        """Record the claims of a transaction."""
        self._isolation.note_commit(
            self._clock.monotonic(),
            is_isolated=result.is_isolated,
            is_draining=result.is_draining,
        )

    def note_end(self, attempt: Attempt) -> None:
        """Record that an attempt no longer runs."""
        if attempt in self._attempts.isolated:
            self._attempts.isolated.remove(attempt)
            self._isolation.note_end()

    def note_isolated_end(self) -> None:
        """Record that the isolated step will not run."""
        self._isolation.note_end()

    def reset(self) -> None:
        """Begin without an isolated step: this worker's claims are gone."""
        self._attempts.isolated.clear()
        self._isolation = Isolation(self._settings.solo_seconds)

    def _release_returned(self) -> None:
        """End the isolation of an attempt that is over by the record, and only waits for its upload."""
        for attempt in list(self._attempts.isolated):
            if self._external.has_returned(attempt.claim):
                self.note_end(attempt)
