"""The worker's loop: gather what finished, commit a turn, start what it claimed, wait.

The loop belongs to asyncio, the database to a thread of its own: while one turn commits, the next
one fills. Nothing is lost when a turn fails: its batch goes first into the next one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from agent.config.models import McpSettings
from agent.config.settings import EngineSettings
from agent.core.backoff import Backoff
from agent.core.clock import SECOND, Clock
from agent.core.thread_bridge import ThreadBridge
from agent.models.registry import ModelRegistry
from agent.steps.attempt.services import Limits, Services
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from agent.store.schema import migrate
from agent.store.schema.migrate import NewerSchemaError
from agent.tasks.commit.batch import Batch
from agent.tasks.commit.committer import CommitResult, Delivery
from agent.tasks.commit.metrics import Blocks
from agent.tasks.commit.pipeline import InFlightTx
from agent.tasks.commit.transaction import FencedError
from agent.tasks.rescue import maintenance, spilled_results
from agent.tasks.rescue.failure_detector import FailureDetector
from agent.tasks.rules.claiming import ClaimCapacity
from agent.tasks.rules.creation import Submission
from agent.tasks.state.poison_isolation import PoisonIsolation
from agent.tasks.worker.attempts import Attempts, WorkerJournal
from agent.tasks.worker.external_values import ExternalValues
from agent.tasks.worker.health import Troubles
from agent.tasks.worker.notifications import Listener, watch_marks
from agent.tasks.worker.outbox import PATIENT_TRIES, Outbox
from agent.tasks.worker.poll_backoff import LOOK_SECONDS, PollBackoff
from agent.tasks.worker.submitters import Submitters

log = structlog.get_logger(__name__)

RETRY_LOCKED_SECONDS: Final = 0.03
RETRY_LONG_LOCKED_SECONDS: Final = 0.5
"""Between tries to record an outcome whose task another process holds for long."""
LOG_SECONDS: Final = 0.25
_FIRST_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 5.0
_SHORTEST_SECONDS: Final = 0.001
"""Of a wait: less than this may be lost in rounding, and be asked for again without end."""
_LAST_SECONDS: Final = 5.0
"""For attempts that were not over in time to leave nothing running."""

Outcome = CommitResult | StoreError | FencedError | None
Landed = tuple[InFlightTx, Outcome]
"""A turn that is no longer in the air, and what became of it: None if nothing did."""

CommitListener = Callable[[list[tuple[Any, ...]]], None]


class Worker:
    """Runs steps until it is told to stop."""

    def __init__(
        self,
        database: Database,
        settings: EngineSettings,
        clock: Clock | None = None,
        limits: Limits | None = None,
        is_only_worker: bool | None = None,
        models: ModelRegistry | None = None,
        mcp: Mapping[str, McpSettings] | None = None,
        link: ThreadBridge | None = None,
    ) -> None:
        self.clock = clock or database.clock
        self.settings = settings
        self.database = database
        self.delivery = Delivery(database, self.clock)
        self.troubles = Troubles(self.clock)
        """What keeps it from its work at the moment, for those who ask."""
        self.blocks = Blocks()
        """Counted by the watchdog, where there is one."""
        self.commit_listeners: list[CommitListener] = []
        """Called in the worker's loop after each of its own commits, with the events it wrote, and
        with none when another process or thread has committed. What they raise is logged.
        Every event in commit order comes from an `EventTail`."""
        self.attempts_started = 0
        self._is_only_worker = database.is_sqlite if is_only_worker is None else is_only_worker
        self._link = link or ThreadBridge("database")
        self._outbox = Outbox()
        self._wakeup = asyncio.Event()
        url = limits.artifacts_url if limits is not None else ""
        self._offsite = ExternalValues(
            self.delivery, self._link, self._outbox, self.troubles, url, self.wake
        )
        intake = self._offsite.intake
        self._journal = WorkerJournal(intake, self.wake, self.clock.now)
        self._services = Services(
            clock=self.clock,
            journal=self._journal,
            limits=limits or Limits(),
            models=models or ModelRegistry(),
            mcp=mcp or {},
        )
        self._attempts = Attempts(self._services, intake, self.wake)
        self._submitters = Submitters()
        self._liveness = FailureDetector(settings.lease_seconds)
        self._is_stopping = False
        self._failure: StoreError | None = None
        self._outdated: NewerSchemaError | None = None
        self._must_look = True
        self._ahead: InFlightTx | None = None
        """The turn that is in the air."""
        self._last_turn = 0.0
        self._last_look = 0.0
        self._last_watch = 0.0
        self._seclusion = PoisonIsolation(settings.solo_seconds)
        self._patience = PollBackoff(settings.poll_seconds)
        self._carries = 0
        """Turns in a row that could not record everything, since others held the tasks."""
        self._has_notice = False
        """Whether another process has changed something since the last look."""

    @property
    def worker_id(self) -> str:
        """Its current identity."""
        return self.delivery.sender.worker_id

    @property
    def running(self) -> int:
        """How many attempts are in flight or not yet settled."""
        return len(self._attempts)

    async def submit(self, submission: Submission) -> str:
        """Create a task and return its id once that is durable."""
        future = self._submitters.await_task(submission.task_id)
        self._outbox.add_submission(submission)
        self._wakeup.set()
        try:
            return await future
        except asyncio.CancelledError:
            # Its submitter has given up, and may come again with another one.
            self._outbox.withdraw(submission)
            self._submitters.forget(submission.task_id)
            raise

    def wake(self) -> None:
        """Let the loop look for work now; called from this process's loop."""
        self._wakeup.set()

    def notice(self) -> None:
        """Another process changed something: look at what is due and at the claims in flight."""
        self._must_look = self._has_notice = True
        self._wakeup.set()
        self._call_listeners([])

    def stop(self) -> None:
        """Begin to end: nothing more is claimed, attempts in flight get their grace."""
        self._is_stopping = True
        self._wakeup.set()

    async def run(self) -> None:
        """Work until `stop`, then let attempts in flight end within their grace."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._link.close)
            await self._begin()
            self._offsite.connect()
            if self.database.is_sqlite:
                check = self.delivery.sender.check_file
                watching = asyncio.create_task(
                    watch_marks(self.database, self.notice, check, self._end)
                )
                stack.callback(watching.cancel)
            else:
                stack.callback(Listener(self.database, self.notice).close)
            try:
                while not self._is_stopping:
                    await self._step()
                await self._land()
                await self._shut_down()
                if self._outdated is not None:
                    raise self._outdated
            except StoreError:
                # The database cannot be written any more, and what calls gave nobody else knows.
                self._offsite.close()
                spilled_results.leave(self.database, self._outbox.take_all_notes())
                await self._link.run(self.delivery.sender.disconnect)
                raise

    def _end(self, error: StoreError) -> None:
        """Let the loop end with an error that no turn has met yet."""
        self._failure = error
        self._wakeup.set()

    async def _begin(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._link.run(self.delivery.enroll)
            except StoreError as error:
                if not error.fault.is_transient or self._is_stopping:
                    raise
                log.warning("worker.cannot_start_yet", error=error.message)
                await asyncio.sleep(backoff.next_seconds())
            else:
                self._last_turn = self.clock.monotonic()
                return

    async def _step(self) -> None:
        """Look if there is reason to, commit a turn if there is reason to, else wait for one."""
        if self._failure is not None:
            raise self._failure
        if self._ahead is not None and self._outbox.is_empty:
            # Attempts that end at once make a turn that is sent while this one is in the air.
            await asyncio.sleep(0)
            if self._outbox.is_empty:
                await self._land()
                return
        wait: float | None = None
        since = self.clock.monotonic() - self._last_look
        # Who is never idle looks all the same: others may have died, and nobody tells of that.
        often = min(self.settings.poll_seconds, self.settings.lease_seconds / 4)
        must_look = self._must_look or since >= often
        is_idle = self._outbox.is_empty and not self._patience.is_needed
        if must_look and (is_idle or since >= LOOK_SECONDS):
            has_notice, self._has_notice = self._has_notice, False
            wait = await self._look()
            if wait is None or wait > 0:
                # What could not be started is no longer due: another worker has taken it.
                self._patience.note_progress()
            elif not self._may_try(has_notice=has_notice):
                left = self._patience.seconds_left(self.clock.monotonic())
                wait = max(left, _SHORTEST_SECONDS)
        elif must_look:
            wait = max(LOOK_SECONDS - since, _SHORTEST_SECONDS)
        is_due = wait is not None and wait <= 0
        if is_due or not self._outbox.is_empty or self._is_turn_due():
            await self._turn(is_looking=is_due)
            return
        limits = [self.settings.poll_seconds, self._until_heartbeat()]
        if wait is None and self._patience.is_needed:
            wait = max(self._patience.seconds_left(self.clock.monotonic()), _SHORTEST_SECONDS)
        await self._sleep(min(limits if wait is None else [*limits, wait]))

    def _may_try(self, *, has_notice: bool) -> bool:
        """Whether to try what is due: at once, unless the last try has started nothing.

        A free slot may serve what another process has just made due.
        """
        if has_notice and self._room(Batch()).slots > 0:
            return True
        return self._patience.seconds_left(self.clock.monotonic()) <= 0

    def _is_turn_due(self) -> bool:
        """Whether the heartbeat, or what has waited, asks for a turn."""
        if self.delivery.has_unequipped or self.troubles.of("database") is not None:
            return True
        since = self.clock.monotonic() - self._last_turn
        if self._outbox.has_logs and since >= LOG_SECONDS:
            return True
        return since >= self.settings.lease_seconds / 3

    def _until_heartbeat(self) -> float:
        since = self.clock.monotonic() - self._last_turn
        limit = LOG_SECONDS if self._outbox.has_logs else self.settings.lease_seconds / 3
        return max(0.0, limit - since)

    async def _sleep(self, seconds: float) -> None:
        """Wait for a reason to go on; after a full wait, look by itself."""
        if not self._wakeup.is_set():
            # Attempts that end at once are the reason, and cost less to wait for in this way.
            await asyncio.sleep(0)
        if not self._wakeup.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._wakeup.wait()
            except TimeoutError:
                self._must_look = True
        self._wakeup.clear()

    async def _look(self) -> float | None:
        """Look without changing anything; return in how many seconds the next task is due."""
        self._must_look = False
        await self._land()
        await self._watch_others()
        claims = [attempt.claim for attempt in self._attempts] + self._offsite.claims
        try:
            look = await self._link.run(lambda: self.delivery.look(claims))
        except StoreError as error:
            self._must_look = True
            await self._pause_after(error)
            return None
        self._last_look = self.clock.monotonic()
        for step_id in look.stops:
            self._attempts.stop(step_id, "the task no longer wants this attempt")
        for step_id in look.pauses:
            self._attempts.pause(step_id)
        self._attempts.unpause(set(look.pauses))
        for attempt in self._attempts:
            if attempt.claim.step_id in look.failing and attempt.claimed.step.run_on == "success":
                self._attempts.stop(attempt.claim.step_id, "another step failed")
        if await self._offsite.note_look(look):
            self._seclusion.note_end()
        if look.next_wake_time is None:
            return None
        return (look.next_wake_time - self.clock.now()) / SECOND

    def _room(
        self, batch: Batch, ahead: InFlightTx | None = None, *, is_looking: bool = False
    ) -> ClaimCapacity:
        """Return how much this turn may claim, after the one ahead of it."""
        running = len(self._attempts) - len(batch.settles) + self._offsite.more_running
        if ahead is not None:
            running += ahead.more_running
        slots = min(self.settings.slots - running, self.settings.batch)
        slots, may_run_alone = self._seclusion.room(slots, running, self.clock.monotonic())
        if self._is_stopping:
            slots = 0
        return ClaimCapacity(
            worker_id=self.delivery.sender.worker_id,
            turn=0,
            slots=max(slots, 0),
            running=running,
            lease_us=int(self.settings.lease_seconds * SECOND),
            may_run_alone=may_run_alone,
            max_depth=self.settings.task_depth,
            most_due=0 if self._is_stopping else max(slots, 16 if is_looking else 0),
            must_look=is_looking,
        )

    async def _turn(self, *, is_looking: bool = False) -> None:
        """Commit one turn and act on what it did; a failed one is repeated after a pause.

        Where a turn may be in the air and there is much to do, half of it is sent first: the other
        half is computed while the database is at work. From then on each turn is sent before the
        one ahead of it has landed.
        """
        ahead, self._ahead = self._ahead, None
        may_fly = not (self.database.is_sqlite or is_looking or self._is_stopping)
        batch = self._outbox.take(is_half=may_fly and ahead is None)
        room = self._room(batch, ahead, is_looking=is_looking)
        stays = may_fly and (ahead is not None or not self._outbox.is_empty)
        self._wakeup.clear()

        def exchange() -> list[Landed]:
            flight = self.delivery.launch(batch, room)
            landed = [] if ahead is None else [(ahead, self._try_land(ahead))]
            if stays and flight.is_in_the_air:
                self._ahead = flight
            else:
                landed.append((flight, self._try_land(flight)))
            return landed

        await self._take_in(await self._link.run(exchange))

    async def _land(self) -> None:
        """Wait for the turn that is in the air, if there is one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            outcome = await self._link.run(lambda: self._try_land(ahead))
            await self._take_in([(ahead, outcome)])

    def _try_land(self, flight: InFlightTx) -> Outcome:
        try:
            return self.delivery.land(flight)
        except (StoreError, FencedError) as error:
            return error

    async def _take_in(self, landed: list[Landed]) -> None:
        """Act on turns that are committed; those that are not are sent again."""
        for flight, outcome in reversed(landed):
            if not isinstance(outcome, CommitResult):
                self._outbox.put_back(flight.batch)
        must_wait = False
        for flight, outcome in landed:
            if isinstance(outcome, CommitResult):
                self._act(outcome)
                self._note_progress(flight, outcome)
                is_carrying = self._outbox.carry(outcome.turned)
                must_wait = must_wait or is_carrying
        for _, outcome in landed:
            if isinstance(outcome, FencedError):
                await self._begin_anew()
                return
            if isinstance(outcome, StoreError):
                await self._pause_after(outcome)
                return
        if self.delivery.has_unequipped:
            # What its attempts begin with cannot be had at the moment.
            await self._sleep(_PAUSE_SECONDS)
        self._carries = self._carries + 1 if must_wait else 0
        if must_wait:
            is_long = self._carries > 2 * PATIENT_TRIES
            await self._sleep(RETRY_LONG_LOCKED_SECONDS if is_long else RETRY_LOCKED_SECONDS)
            self._must_look = True

    def _note_progress(self, flight: InFlightTx, delivered: CommitResult) -> None:
        """Take note whether a turn has started anything, or left due what it could not start."""
        turned = delivered.turned
        if turned.claimed or not flight.batch.is_empty:
            self._patience.note_progress()
            if turned.has_locked:
                self._must_look = True
        elif flight.room.must_look and (
            turned.has_locked or self.delivery.sender.cache.is_anything_due(self.clock.now())
        ):
            self._patience.note_failure(self.clock.monotonic())

    async def _deliver(self, batch: Batch) -> CommitResult:
        room = self._room(batch)
        delivered = await self._link.run(lambda: self.delivery.deliver(batch, room))
        self._act(delivered)
        return delivered

    def _act(self, delivered: CommitResult) -> None:
        """Start what was claimed, and tell everybody what was committed."""
        self._last_turn = self.clock.monotonic()
        if self.troubles.clear("database") is not None:
            log.info("database.usable_again")
        turned = delivered.turned
        for note, is_recorded in turned.noted:
            self._journal.answer(note, is_recorded)
        for settle, _ in turned.settled:
            attempt = self._attempts.settled(settle.claim)
            if attempt is not None and attempt.is_alone:
                self._seclusion.note_end()
        self.attempts_started += len(delivered.attempts)
        for claimed in delivered.attempts:
            self._attempts.start(claimed, is_alone=delivered.is_alone)
        self._offsite.note_turn(delivered)
        for step_id, _ in turned.stops:
            self._attempts.stop(step_id, "another step failed")
        self._submitters.tell(turned.created, delivered.refused)
        self._seclusion.note_turn(
            self.clock.monotonic(), is_alone=turned.is_alone, is_draining=turned.is_draining
        )
        if turned.has_more:
            self.notice()
        for end in turned.ended:
            if end.parent_step_id is not None:
                self._outbox.add_child_end(end)
                self._wakeup.set()
        for task_id in turned.orphans:
            maintenance.cancel_soon(self.delivery, task_id, self.notice)
        for pause in turned.pauses:
            maintenance.pause_soon(self.delivery, pause, self.notice)
        if turned.events:
            self._call_listeners(turned.events)

    def _call_listeners(self, events: list[tuple[Any, ...]]) -> None:
        for listener in self.commit_listeners:
            try:
                listener(events)
            except Exception:
                log.exception("listener.failed")

    async def _pause_after(self, error: StoreError) -> None:
        """Wait before the same turn is sent again; what cannot get better ends the worker."""
        if error.fault in (Fault.CORRUPT, Fault.READONLY, Fault.REPLACED):
            raise error
        if self.troubles.note("database", error.message) or error.fault is Fault.BUSY:
            log.warning("turn.repeated", fault=str(error.fault), error=error.message)
        await asyncio.sleep(_FIRST_PAUSE_SECONDS if error.fault is Fault.BUSY else _PAUSE_SECONDS)

    async def _begin_anew(self) -> None:
        """Take a new identity after being declared dead: every claim of the old one is gone."""
        log.warning("worker.fenced", worker=self.delivery.sender.worker_id)
        self._attempts.stop_all("this worker was declared dead")
        self._journal.refuse_all()
        self._seclusion = PoisonIsolation(self.settings.solo_seconds)
        if self.database.is_sqlite:
            await self._link.run(self.delivery.sender.check_known)
        # Somebody else declared it: from now on the dead are looked for, our old self among them.
        self._is_only_worker = False
        self._last_watch = float("-inf")
        # The attempts settle as late outcomes under the old claims, which no longer hold.
        await self._begin()
        self.notice()

    async def _watch_others(self) -> None:
        """Declare silent workers dead and take over what the dead have left.

        A database that a newer version has upgraded ends this worker: everything it can still
        commit is committed, and its claims are given back.
        """
        now = self.clock.monotonic()
        if now - self._last_watch < self.settings.lease_seconds / 4:
            return
        self._last_watch = now
        try:
            await self._link.run(lambda: migrate.refuse_newer(self.delivery.sender.connection))
            if self._is_only_worker:
                return
            watched = await self._link.run(
                lambda: maintenance.watch(self.delivery, self._liveness, self.clock.monotonic())
            )
        except NewerSchemaError as error:
            log.error("worker.outdated", error=error.message)
            self._outdated = error
            self.stop()
            return
        except StoreError as error:
            await self._pause_after(error)
            return
        if watched.steps:
            self._must_look = True
        if watched.deaths or watched.steps:
            maintenance.cancel_orphans_soon(self.delivery, self.notice)

    async def _shut_down(self) -> None:
        """Let attempts in flight end, commit what they gave, and retire."""
        deadline = self.clock.monotonic() + self.settings.shutdown_seconds
        self._attempts.stop_all("shutdown")
        while self._attempts and self.clock.monotonic() < deadline:
            if self._offsite.is_stranded(len(self._attempts)):
                break
            if self._outbox.is_empty:
                await self._sleep(min(0.5, max(deadline - self.clock.monotonic(), 0.01)))
            else:
                await self._turn()
        left = [attempt.task for attempt in self._attempts if attempt.task is not None]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_LAST_SECONDS)
        self._offsite.close()
        try:
            while not self._outbox.is_empty or self._outbox.has_logs:
                batch = self._outbox.take()
                try:
                    delivered = await self._deliver(batch)
                except (StoreError, FencedError):
                    self._outbox.put_back(batch)
                    raise
                if self._outbox.carry(delivered.turned):
                    await asyncio.sleep(RETRY_LOCKED_SECONDS)
            await self._link.run(self.delivery.sender.retire)
            is_waiting = self.delivery.has_unequipped or self._offsite.claims
            if (self._attempts or is_waiting) and not self._attempts.are_out_of_hand:
                await self._link.run(lambda: maintenance.hand_over(self.delivery))
        except (StoreError, FencedError) as error:
            log.warning("worker.left_unsettled", error=str(error))
            spilled_results.leave(self.database, self._outbox.take_all_notes())
        await self._services.aclose()
        await self._link.run(self.delivery.sender.disconnect)
