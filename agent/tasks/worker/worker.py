"""The worker's loop: collect completions, commit them, start claimed steps, wait.

The loop runs in asyncio, the database in a thread of its own: while one batch commits, the next one
fills. A failed commit loses nothing: its batch goes first into the next one.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from agent.config.execution import EngineSettings
from agent.config.mail import MailSettings
from agent.config.models import McpSettings
from agent.core.clock import SECOND, Clock
from agent.core.thread_bridge import ThreadBridge
from agent.models.registry import ModelRegistry
from agent.steps.attempt.captured_output import capturing
from agent.steps.attempt.services import Limits, Services
from agent.store.db.database import Database, StoreError
from agent.store.schema.migrate import NewerSchemaError
from agent.tasks.commit.batch import Batch, CommitResult
from agent.tasks.commit.committer import Committer
from agent.tasks.commit.faults import Phase
from agent.tasks.commit.metrics import Blocks
from agent.tasks.read_models.conversations import ConversationReader
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.tasks.worker import failures, results, shutdown
from agent.tasks.worker.answering import Answering
from agent.tasks.worker.attempts import Attempts
from agent.tasks.worker.batch_sender import BatchSender, FinishedTx
from agent.tasks.worker.external_workers import ExternalWorkers
from agent.tasks.worker.firings import PendingFirings
from agent.tasks.worker.health import Health
from agent.tasks.worker.journal import WorkerJournal
from agent.tasks.worker.large_values.external_values import ExternalValues
from agent.tasks.worker.outbox import TRIES_BEFORE_WAITING, Outbox
from agent.tasks.worker.peers import PeerWatch
from agent.tasks.worker.poll_schedule import PollSchedule
from agent.tasks.worker.shutdown import RETRY_LOCKED_SECONDS
from agent.tasks.worker.slots import Slots
from agent.tasks.worker.state_conflicts import StateConflicts
from agent.tasks.worker.submitters import Submitters
from agent.tasks.worker.wake_listener import Listener, watch_marks

log = structlog.get_logger(__name__)

RETRY_LONG_LOCKED_SECONDS: Final = 0.5
"""Between tries to record a completion whose task another process holds for long."""
LOG_SECONDS: Final = 0.25

CommitListener = Callable[[list[tuple[Any, ...]]], None]


class Worker:
    """Runs steps until `stop`."""

    def __init__(
        self,
        database: Database,
        settings: EngineSettings,
        clock: Clock | None = None,
        limits: Limits | None = None,
        is_only_worker: bool | None = None,
        models: ModelRegistry | None = None,
        mcp: Mapping[str, McpSettings] | None = None,
        mail: Mapping[str, MailSettings] | None = None,
        database_thread: ThreadBridge | None = None,
    ) -> None:
        self.clock = clock or database.clock
        self.settings = settings
        self.database = database
        self.committer = Committer(database, self.clock)
        self.health = Health(self.clock)
        """Why it cannot work at the moment, for the server."""
        self.blocks = Blocks()
        """Counted by the watchdog, where there is one."""
        self.commit_listeners: list[CommitListener] = []
        """Called in the worker's loop after each of its own commits, with the events it wrote, and
        with none when another process or thread has committed. Their exceptions are logged.
        An `EventTail` has every event in commit order."""
        self.attempts_started = 0
        self.database_thread = database_thread or ThreadBridge("database")
        self.outbox = Outbox()
        limits = limits or Limits()
        self.external = ExternalValues(
            self.committer,
            self.database_thread,
            self.outbox,
            self.health,
            limits.artifacts_url,
            self.wake,
        )
        self.journal = WorkerJournal(self.external.queue, self.wake, self.clock.now)
        self.services = Services(
            clock=self.clock,
            journal=self.journal,
            limits=limits,
            models=models or ModelRegistry(),
            mcp=mcp or {},
            mail=mail or {},
            conversations=ConversationReader(database),
        )
        self.attempts = Attempts(self.services, self.external.queue, self.wake, self.health)
        self.state_conflicts = StateConflicts(self.outbox, self.wake)
        self.submitters = Submitters()
        self.firings = PendingFirings()
        self.answering = Answering(self.clock, settings.lease_seconds)
        self.external_workers = ExternalWorkers(self.clock, self.outbox, self.wake)
        self.slots = Slots(settings, self.attempts, self.external, self.clock, self.answering)
        self._sender = BatchSender(self.committer, self.database_thread, self.outbox, self.slots)
        self.peers = PeerWatch(
            self.committer,
            self.database_thread,
            self.clock,
            settings.lease_seconds,
            limits,
            is_only_worker=database.is_sqlite if is_only_worker is None else is_only_worker,
        )
        self._polls = PollSchedule(settings.poll_seconds, settings.lease_seconds)
        self._wakeup = asyncio.Event()
        self.is_stopping = False
        self._failure: StoreError | None = None
        self._outdated: NewerSchemaError | None = None
        self.last_commit = 0.0
        """By the monotonic clock."""
        self._carrying_commits = 0
        """Commits in a row that left something queued because its task was locked."""

    @property
    def worker_id(self) -> str:
        """Its current identity."""
        return self.committer.worker_id

    @property
    def running(self) -> int:
        """How many attempts are in flight or not yet settled."""
        return len(self.attempts)

    async def submit(self, submission: Submission) -> str:
        """Create a task and return its id once that is durable."""
        self._raise_failure()
        future = self.submitters.await_task(submission.task_id)
        self.outbox.add_submission(submission)
        self._wakeup.set()
        try:
            return await future
        except asyncio.CancelledError:
            # The submitter has given up, and may submit another one.
            self.outbox.withdraw(submission)
            self.submitters.forget(submission.task_id)
            raise

    async def fire(self, update: TriggerUpdate) -> FireResult:
        """Apply a plan for a trigger with the next commit; return its result once that is durable."""
        self._raise_failure()
        future = self.firings.await_result(update)
        self.outbox.add_trigger_update(update)
        self._wakeup.set()
        try:
            return await future
        finally:
            self.firings.forget(update)

    def apply(self, settings: EngineSettings) -> None:
        """Work by changed settings from now on; the lease must be the same."""
        self.settings = settings
        self.slots.apply(settings)
        self._polls.set_intervals(settings.poll_seconds, settings.lease_seconds)
        self.wake()

    def wake(self) -> None:
        """Let the loop continue; called in this process's loop."""
        self._wakeup.set()

    def on_other_commit(self) -> None:
        """Poll soon: another process has committed something."""
        self._polls.on_other_commit()
        self._wakeup.set()
        self.external_workers.on_other_commit()
        self.call_listeners([])

    def stop(self) -> None:
        """Begin to end: nothing more is claimed, and attempts in flight get their grace."""
        self.is_stopping = True
        self.external_workers.stop()
        self._wakeup.set()

    async def run(self) -> None:
        """Work until `stop`, then let attempts in flight end within their grace."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.database_thread.close)
            stack.enter_context(capturing())
            await failures.enroll(self)
            self.external.connect()
            if self.database.is_sqlite:
                check_file = self.committer.session.check_file
                watching = asyncio.create_task(
                    watch_marks(self.database, self.on_other_commit, check_file, self._fail)
                )
                stack.callback(watching.cancel)
            else:
                stack.callback(Listener(self.database, self.on_other_commit).close)
            try:
                while not self.is_stopping:
                    await self._run_once()
                await self._complete_unconfirmed()
                await shutdown.shut_down(self)
                if self._outdated is not None:
                    raise self._outdated
            except StoreError as error:
                self._failure = error
                for callers in (self.submitters, self.firings, self.external_workers):
                    callers.fail(error)
                await shutdown.abandon(self)
                raise

    def _fail(self, error: StoreError) -> None:
        """Let the loop end with an error that no commit has met yet."""
        self._failure = error
        self._wakeup.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _run_once(self) -> None:
        """Poll if there is a reason to, commit if there is a reason to, else wait for one."""
        self._raise_failure()
        if self._sender.unconfirmed is not None and self.outbox.is_empty:
            # Attempts that end at once fill a batch that is sent before the last one is confirmed.
            await asyncio.sleep(0)
            if self.outbox.is_empty:
                await self._complete_unconfirmed()
                return
        wait = self._polls.poll_delay(self.clock.monotonic(), is_idle=self.outbox.is_empty)
        if wait is not None and wait <= 0:
            wait = await self._poll()
        is_due = wait is not None and wait <= 0
        if is_due or not self.outbox.is_empty or self._is_commit_due():
            await self.commit(must_query_due=is_due)
            return
        limits = [self.settings.poll_seconds, self._seconds_to_heartbeat()]
        if wait is None and self._polls.is_backing_off:
            wait = self._polls.backoff_delay(self.clock.monotonic())
        await self.sleep(min(limits if wait is None else [*limits, wait]))

    async def _poll(self) -> float | None:
        """Return in how many seconds to claim due work: 0 or less is now, None is not known."""
        has_changes = self._polls.begin_poll()
        due_in = await self._read_changes()
        return self._polls.claim_delay(
            due_in, self.clock.monotonic(), has_changes=has_changes, has_slot=self._has_slot
        )

    def _has_slot(self) -> bool:
        return self.slots.capacity(Batch(), is_stopping=self.is_stopping).slots > 0

    def _is_commit_due(self) -> bool:
        """Whether the heartbeat, or something that waits, needs a commit."""
        if self.committer.pending_attempts or self.health.problem("database") is not None:
            return True
        return self._seconds_to_heartbeat() <= 0

    def _seconds_to_heartbeat(self) -> float:
        since = self.clock.monotonic() - self.last_commit
        limit = self.settings.lease_seconds / 3
        if self.outbox.has_followed_logs:
            limit = min(limit, LOG_SECONDS)
        return max(0.0, limit - since)

    async def sleep(self, seconds: float) -> None:
        """Wait for a wake-up; poll after a full wait."""
        if not self._wakeup.is_set():
            # Attempts that end at once cost less to wait for in this way.
            await asyncio.sleep(0)
        if not self._wakeup.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._wakeup.wait()
            except TimeoutError:
                self._polls.request()
        self._wakeup.clear()

    async def _read_changes(self) -> float | None:
        """Read changes of other processes; return in how many seconds the next task is due."""
        await self._complete_unconfirmed()
        await self._check_peers()
        claims = [attempt.claim for attempt in self.attempts] + self.external.claims
        try:
            poll = await self.database_thread.run(lambda: self.committer.poll(claims))
        except StoreError as error:
            self._polls.request()
            await failures.retry_later(self, Phase.POLL, error)
            return None
        self._polls.end_poll(self.clock.monotonic())
        await results.signal_attempts(self, poll)
        if poll.next_wake_time is None:
            return None
        return (poll.next_wake_time - self.clock.now()) / SECOND

    async def _check_peers(self) -> None:
        """Take over the steps of dead workers.

        A database that a newer version has upgraded ends this worker: everything it can still
        commit is committed, and its claims are returned.
        """
        try:
            if await self.peers.check(self.on_other_commit):
                self._polls.request()
        except NewerSchemaError as error:
            log.error("worker.outdated", error=error.message)
            self._outdated = error
            self.stop()
        except StoreError as error:
            await failures.retry_later(self, Phase.POLL, error)

    async def commit(self, *, must_query_due: bool = False) -> None:
        """Send a batch and act on committed ones; a failed one is sent again after a pause."""
        self._wakeup.clear()
        await self._handle(
            await self._sender.commit(must_query_due=must_query_due, is_stopping=self.is_stopping)
        )

    async def _complete_unconfirmed(self) -> None:
        if self._sender.unconfirmed is not None:
            await self._handle(await self._sender.complete_unconfirmed())

    async def _handle(self, finished: list[FinishedTx]) -> None:
        """Act on transactions that were committed; queue the batches of the others again."""
        for tx, commit_result in reversed(finished):
            rest = commit_result.rest if isinstance(commit_result, CommitResult) else tx.batch
            if rest is not None:
                self.outbox.requeue(rest)
        is_carrying = False
        for tx, commit_result in finished:
            if isinstance(commit_result, CommitResult):
                self.note_commit()
                results.act_on(self, commit_result)
                self._polls.note_commit(
                    tx, commit_result.result, self.last_commit, self._is_anything_due
                )
                is_carrying = self.outbox.carry(commit_result.result) or is_carrying
        for _, commit_result in finished:
            if not isinstance(commit_result, CommitResult) and await failures.recover(
                self, commit_result
            ):
                return
        if self.committer.pending_attempts:
            # Their inputs cannot be read at the moment.
            await self.sleep(failures.PAUSE_SECONDS)
        self._carrying_commits = self._carrying_commits + 1 if is_carrying else 0
        if is_carrying:
            is_long = self._carrying_commits > 2 * TRIES_BEFORE_WAITING
            await self.sleep(RETRY_LONG_LOCKED_SECONDS if is_long else RETRY_LOCKED_SECONDS)
            self._polls.request()

    def _is_anything_due(self) -> bool:
        return self.committer.cache.is_anything_due(self.clock.now())

    def note_commit(self) -> None:
        """Record that a transaction was committed: it is a heartbeat."""
        self.last_commit = self.clock.monotonic()
        if self.health.resolve("database") is not None:
            log.info("database.usable_again")

    def call_listeners(self, events: list[tuple[Any, ...]]) -> None:
        """Pass the events of a commit to every listener."""
        for listener in self.commit_listeners:
            try:
                listener(events)
            except Exception:
                log.exception("listener.failed")
