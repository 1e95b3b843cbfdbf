"""The worker: claims work, runs handlers, and reports their outcomes.

One thread claims, with one long poll for all free slots. Each claimed step has a thread that runs its
handler and delivers the result; coroutine functions run in one event loop. Another thread extends the
leases, so a handler that computes for an hour keeps its own.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from agent.core.clock import Clock
from agent.queue import execution, handlers
from agent.queue.claims import Claims
from agent.queue.connection import Connection
from agent.queue.errors import QueueError
from agent.queue.heartbeats import Heartbeats
from agent.queue.lease import Document, Lease
from agent.queue.outcome import Outcome, outcome_of
from agent.queue.report import deliver

log = logging.getLogger("agent.queue")

_VERBS_WITH_CLAIM: Final = ("complete", "fail")
"""Reports that also claim the next work: a busy worker sends one request for each step."""
STOPPING: Final = "the worker is stopping"
_POLL_SECONDS: Final = 0.1
_IDLE_CHECK_SECONDS: Final = 1.0
"""How often a worker that ends with its queue claims again while handlers still run."""


class Worker:
    """Handles the work of one or more queues.

    `server` and `token` default to AGENT_SERVER and AGENT_TOKEN (or AGENT_TOKEN_FILE). Without
    functions it uses every one of this process that `@handler` decorates. A worker runs once.
    """

    def __init__(
        self,
        *functions: handlers.Handler,
        server: str | None = None,
        token: str | None = None,
        concurrency: int = 1,
        lease_seconds: float | None = None,
        grace_seconds: float = 30.0,
        end_seconds: float = 5.0,
        name: str | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self._handlers = handlers.by_queue(functions)
        self._clock = Clock()
        self._connection = Connection(server, token)
        worker = name or f"{socket.gethostname()}:{os.getpid()}"
        # Its own connection: stopping interrupts a long poll, and nothing else.
        self._claims = Claims(
            Connection(server, token), sorted(self._handlers), worker, lease_seconds
        )
        self._heartbeats = Heartbeats(self._clock)
        self._grace_seconds = grace_seconds
        self._end_seconds = end_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        self._claims_ended = threading.Event()
        self._give_up_at: float | None = None
        """By the monotonic clock: when a stopping worker waits no longer for handlers and results."""
        self._slots = threading.Condition()
        self._concurrency = self._free = concurrency
        self._claims_left: int | None = None
        """How many claims may still be made; None for any number."""
        self._next_claims = 0
        """Claims that reports carry at the moment; `_claims_left` counts them as made."""
        self._leases: set[Lease] = set()
        self._error: BaseException | None = None
        self._undelivered: list[str] = []

    def run(self, *, limit: int | None = None, until_empty: bool = False) -> None:
        """Work until SIGTERM, SIGINT or `stop`; then let the handlers finish, and return.

        `limit` ends it after this many claims, `until_empty` when no work waits. Handlers get
        `grace_seconds` after the signal, and `end_seconds` more once they must end; a second
        signal ends the program at once.
        """
        has_async = any(map(handlers.is_async, self._handlers.values()))
        with execution.own_loop(is_needed=has_async) as self._loop, _signals(self.stop):
            self._run_until_stopped(limit, until_empty=until_empty)

    async def serve(self, *, limit: int | None = None, until_empty: bool = False) -> None:
        """Work as `run` does, beside other coroutines: handlers run in this event loop.

        Signals are the caller's: call `stop`, or cancel this.
        """
        self._loop = asyncio.get_running_loop()
        working = asyncio.ensure_future(
            asyncio.to_thread(self._run_until_stopped, limit, until_empty=until_empty)
        )
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self.stop()
            await working
            raise

    def stop(self) -> None:
        """Claim nothing more, and end when the handlers have; also for a signal's handler."""
        self._stop.set()
        self._claims_ended.set()

    def _run_until_stopped(self, limit: int | None, *, until_empty: bool) -> None:
        """Claim and handle work until `stop`, the limit, or the end of the queue; raise the first failure."""
        self._claims_left = limit
        claiming = threading.Thread(
            target=self._claim_loop, args=[until_empty], name="agent claims", daemon=True
        )
        self._heartbeats.start()
        claiming.start()
        self._claims_ended.wait()
        while claiming.is_alive():
            # Repeated, since it may have been about to send the claim.
            self._claims.interrupt()
            claiming.join(_POLL_SECONDS)
        # Now, so that other workers need not wait for the handlers of this one. And once more after them:
        # the report of a handler may carry a claim too.
        self._claims.give_back()
        self._wait_for_handlers()
        self._claims.give_back()
        self._heartbeats.close()
        self._claims.close()
        self._connection.close()
        if self._error is not None:
            raise self._error
        if self._undelivered:
            raise QueueError(f"not delivered: {', '.join(self._undelivered)}")

    def _claim_loop(self, until_empty: bool) -> None:
        """Claim while there are free slots and no reason to stop."""
        try:
            while not self._stop.is_set() and self._wants_more():
                limit = self._wait_for_slot()
                if limit == 0:
                    continue
                claimed = self._claims.claim(limit, self._stop, is_waiting=not until_empty)
                for document in claimed:
                    self._start_thread(Lease(self._connection, document))
                if not claimed and until_empty and self._wait_until_idle():
                    break
        except BaseException as error:
            self._error = error
        finally:
            self._claims_ended.set()

    def _wants_more(self) -> bool:
        with self._slots:
            return self._claims_left is None or self._claims_left + self._next_claims > 0

    def _wait_for_slot(self) -> int:
        """Return how many claims can be made, after a short wait if none can."""
        with self._slots:
            if self._free == 0 or self._claims_left == 0:
                self._slots.wait(_POLL_SECONDS)
            return self._free if self._claims_left is None else min(self._free, self._claims_left)

    def _wait_until_idle(self) -> bool:
        """Return whether no handler runs, after a short wait if one does.

        A queue may get more work while a handler runs: its end can make the next step due.
        """
        with self._slots:
            if self._is_busy:
                self._slots.wait(_IDLE_CHECK_SECONDS)
            return not self._is_busy

    @property
    def _is_busy(self) -> bool:
        return self._free < self._concurrency

    def _start_thread(self, lease: Lease) -> None:
        """Take a slot, and handle a lease in a thread of its own."""
        with self._slots:
            self._free -= 1
            if self._claims_left is not None:
                self._claims_left -= 1
        # A daemon thread: a handler that cannot be stopped must not keep the program from ending.
        threading.Thread(
            target=self._handle, args=[lease], name=f"agent {lease.id}", daemon=True
        ).start()

    def _handle(self, lease: Lease) -> None:
        """Handle a lease, and the next ones for as long as work waits."""
        try:
            following: Lease | None = lease
            while following is not None:
                following = self._handle_one(following)
        except BaseException as error:
            log.exception("the worker failed on %s", lease.describe())
            self._error = error
            self.stop()
        finally:
            with self._slots:
                self._free += 1
                self._slots.notify_all()

    def _handle_one(self, lease: Lease) -> Lease | None:
        """Run the handler of a lease, deliver its outcome, and return the next lease."""
        with self._slots:
            self._leases.add(lease)
        self._heartbeats.add(lease)
        try:
            outcome = self._run_handler(lease)
            if outcome is None:
                return None
            claim = self._next_claim() if outcome.verb in _VERBS_WITH_CLAIM else None
            sent_at = self._clock.monotonic()
            if claim is not None:
                outcome = Outcome(outcome.verb, {**outcome.document, "claim": claim})
            delivery = deliver(self._connection, lease, outcome, self._must_give_up_after)
            if not delivery.is_settled:
                self._undelivered.append(f"{outcome.verb} of {lease.describe()}")
        finally:
            self._heartbeats.remove(lease)
            with self._slots:
                self._leases.discard(lease)
        if claim is None:
            return None
        following = self._next_lease(claim, delivery.answer.get("work"))
        if following is not None and self._clock.monotonic() - sent_at >= following.seconds:
            # It may have expired meanwhile.
            following.must_report_running = True
        return following

    def _next_claim(self) -> Document | None:
        """Return a claim that the end of a lease carries; None if no more work is wanted."""
        with self._slots:
            if self._stop.is_set() or self._claims_left == 0:
                return None
            self._next_claims += 1
            if self._claims_left is not None:
                self._claims_left -= 1
        return self._claims.next_claim()

    def _next_lease(self, claim: Document, answered: list[Document] | None) -> Lease | None:
        """Return the lease that such a claim got; without an answer the claim is repeated."""
        work = self._claims.repeat(claim, self._stop) if answered is None else answered
        with self._slots:
            self._next_claims -= 1
            if not work and self._claims_left is not None:
                self._claims_left += 1
        return Lease(self._connection, work[0]) if work else None

    def _run_handler(self, lease: Lease) -> Outcome | None:
        """Run the handler of a lease; return the outcome to report, None if it must not begin."""
        function = self._handlers[lease.document["queue"]]
        if lease.must_report_running:
            if self._stop.is_set():
                return Outcome("release", {"reason": STOPPING})
            try:
                self._report_running(lease)
            except QueueError as error:
                log.warning("%s is not started: %s", lease.describe(), error)
                return None
        return outcome_of(lease, lambda: execution.call(function, lease, self._loop))

    def _report_running(self, lease: Lease) -> None:
        """Report that the work begins, and wait until the agent has recorded it.

        While the answer was on its way the lease may have expired. An answer that took that long is not
        used: the report is sent again.
        """
        is_late = True
        while is_late:
            sent_at = self._clock.monotonic()
            lease.call("running", {})
            is_late = self._clock.monotonic() - sent_at >= lease.seconds

    def _wait_for_handlers(self) -> None:
        """Wait for the handlers: without end if no more is claimed, for the grace time if stopped."""
        last: float | None = None
        with self._slots:
            while self._is_busy:
                now = self._clock.monotonic()
                if self._stop.is_set() and self._give_up_at is None:
                    self._give_up_at = now + self._grace_seconds
                for lease in self._leases:
                    lease.is_stopping = self._stop.is_set()
                if self._give_up_at is not None and now > self._give_up_at and last is None:
                    last = now + self._end_seconds
                    for lease in self._leases:
                        lease.stop_now()
                if last is not None and now > last:
                    # Not released: another worker must not get a step that still runs here.
                    names = ", ".join(lease.describe() for lease in self._leases)
                    log.error("these handlers still run, and their leases will expire: %s", names)
                    return
                self._slots.wait(_POLL_SECONDS)

    def _must_give_up_after(self, seconds: float) -> bool:
        """Sleep between two tries to deliver a result; return True when it must be given up."""
        until = self._clock.monotonic() + seconds
        while (now := self._clock.monotonic()) < until:
            if self._give_up_at is not None and now > self._give_up_at:
                return True
            self._clock.sleep(min(_POLL_SECONDS, until - now))
        return False


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first SIGTERM or SIGINT; the next one has its earlier handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}

    def handle(_number: int, _frame: FrameType | None) -> None:
        _restore(before)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers_before: dict[signal.Signals, Any]) -> None:
    while handlers_before:
        number, action = handlers_before.popitem()
        signal.signal(number, action)
