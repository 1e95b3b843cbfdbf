"""The worker: claims work, runs handlers, and reports what became of them.

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
from agent.queue.lease import Lease
from agent.queue.outcome import Outcome, outcome_of
from agent.queue.report import deliver

log = logging.getLogger("agent.queue")

STOPPING: Final = "the worker is stopping"
_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 1.0
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
        self._deadline: float | None = None
        """By the monotonic clock: when a worker that stops waits no longer."""
        self._slots = threading.Condition()
        self._free = concurrency
        self._leases: set[Lease] = set()
        self._problem: BaseException | None = None
        self._undelivered: list[str] = []

    def run(self, *, limit: int | None = None, until_empty: bool = False) -> None:
        """Work until SIGTERM, SIGINT or `stop`; then let the handlers finish, and return.

        `limit` ends it after this many claims, `until_empty` when no work waits. Handlers get
        `grace_seconds` after the signal, and `end_seconds` more once they were told to end; a second
        signal ends the program at once.
        """
        has_async = any(map(handlers.is_async, self._handlers.values()))
        with execution.own_loop(is_needed=has_async) as self._loop, _signals(self.stop):
            self._work(limit, until_empty=until_empty)

    async def serve(self, *, limit: int | None = None, until_empty: bool = False) -> None:
        """Work as `run` does, beside other coroutines: handlers run in this event loop.

        Signals are the caller's: call `stop`, or cancel this.
        """
        self._loop = asyncio.get_running_loop()
        working = asyncio.ensure_future(
            asyncio.to_thread(self._work, limit, until_empty=until_empty)
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

    def _work(self, limit: int | None, *, until_empty: bool) -> None:
        claiming = threading.Thread(
            target=self._claim, args=[limit, until_empty], name="agent claims", daemon=True
        )
        self._heartbeats.start()
        claiming.start()
        self._claims_ended.wait()
        while claiming.is_alive():
            # Repeated, since it may have been about to send the claim.
            self._claims.interrupt()
            claiming.join(_POLL_SECONDS)
        self._finish()
        self._heartbeats.close()
        self._connection.close()
        if self._problem is not None:
            raise self._problem
        if self._undelivered:
            raise QueueError(f"not delivered: {', '.join(self._undelivered)}")

    def _claim(self, limit: int | None, until_empty: bool) -> None:
        """Claim while there are free slots and no reason to stop."""
        left = limit
        try:
            while left != 0 and not self._stop.is_set():
                free = self._wait_for_slot()
                if free == 0:
                    continue
                asked = free if left is None else min(free, left)
                found = self._claims.claim(asked, self._stop, is_waiting=not until_empty)
                for document in found:
                    self._begin(Lease(self._connection, document))
                if left is not None:
                    left -= len(found)
                if not found and until_empty and self._is_idle():
                    break
        except BaseException as problem:
            self._problem = problem
        finally:
            self._claims.give_back()
            self._claims_ended.set()

    def _wait_for_slot(self) -> int:
        """Return the number of free slots, after a short wait if there is none."""
        with self._slots:
            if self._free == 0:
                self._slots.wait(_POLL_SECONDS)
            return self._free

    def _is_idle(self) -> bool:
        """Whether no handler runs: the end of one could make more work due. Waits a moment if not."""
        with self._slots:
            if self._leases:
                self._slots.wait(_LOOK_SECONDS)
            return not self._leases

    def _begin(self, lease: Lease) -> None:
        with self._slots:
            self._free -= 1
            self._leases.add(lease)
        self._heartbeats.add(lease)
        # A daemon thread: a handler that cannot be stopped must not keep the program from ending.
        threading.Thread(
            target=self._handle, args=[lease], name=f"agent {lease.id}", daemon=True
        ).start()

    def _handle(self, lease: Lease) -> None:
        """Run the handler of a lease and deliver what came of it."""
        try:
            outcome = self._outcome(lease)
            if outcome is not None and not deliver(
                self._connection, lease, outcome, self._wait_to_deliver
            ):
                self._undelivered.append(f"{outcome.verb} of {lease.describe()}")
        except BaseException as problem:
            log.exception("the worker failed on %s", lease.describe())
            self._problem = problem
            self.stop()
        finally:
            self._heartbeats.remove(lease)
            with self._slots:
                self._leases.discard(lease)
                self._free += 1
                self._slots.notify_all()

    def _outcome(self, lease: Lease) -> Outcome | None:
        if self._stop.is_set():
            return Outcome("release", {"reason": STOPPING})
        function = self._handlers[lease.document["queue"]]
        try:
            # Nothing may happen before the agent has recorded that it begins.
            lease.call("running", {})
        except QueueError as problem:
            log.warning("%s does not begin: %s", lease.describe(), problem)
            return None
        return outcome_of(lease, lambda: execution.call(function, lease, self._loop))

    def _finish(self) -> None:
        """Wait for the handlers: without end if no more is claimed, for the grace time if stopped."""
        last: float | None = None
        with self._slots:
            while self._leases:
                now = self._clock.monotonic()
                if self._stop.is_set() and self._deadline is None:
                    self._deadline = now + self._grace_seconds
                    for lease in self._leases:
                        lease.is_stopping = True
                if self._deadline is not None and now > self._deadline and last is None:
                    last = now + self._end_seconds
                    for lease in self._leases:
                        lease.stop_now()
                if last is not None and now > last:
                    # Not released: what still runs must not be given to another worker.
                    names = ", ".join(lease.describe() for lease in self._leases)
                    log.error("the handlers still run, and their leases will expire: %s", names)
                    return
                self._slots.wait(_POLL_SECONDS)

    def _wait_to_deliver(self, seconds: float) -> bool:
        """Sleep between two tries; return True when the result must be given up."""
        until = self._clock.monotonic() + seconds
        while (now := self._clock.monotonic()) < until:
            if self._deadline is not None and now > self._deadline:
                return True
            self._clock.sleep(min(_POLL_SECONDS, until - now))
        return False


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first SIGTERM or SIGINT; the next one does what it did before."""
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
