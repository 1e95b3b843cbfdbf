"""The warm pool: processes that wait for the next function of a step."""

import asyncio
from collections import deque

from agent.core.thread_bridge import UnboundedThreads
from agent.steps.executors import worker_process
from agent.steps.executors.worker_process import WorkerProcess


class ProcessPool:
    """At most `size` processes; each is lent to one attempt at a time."""

    def __init__(self, size: int, threads: UnboundedThreads) -> None:
        self.size = size
        self._threads = threads
        self._idle: list[WorkerProcess] = []
        self._lent = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> WorkerProcess:
        """Return a process that waits for a function; a new one is started if none does."""
        while self._lent >= self.size:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._waiting = deque(waiting for waiting in self._waiting if waiting is not turn)
                if turn.done() and not turn.cancelled():
                    self._wake_next()
                raise
        self._lent += 1
        while self._idle:
            # The one used last: its memory is the warmest, and others may be ended.
            process = self._idle.pop()
            if not process.has_ended:
                return process
            process.kill()
        try:
            return await worker_process.start(self._threads)
        except BaseException:
            self._give_back()
            raise

    def put(self, process: WorkerProcess) -> None:
        """Take a process back; one that cannot be used again is ended."""
        if process.is_usable and len(self._idle) + self._lent <= self.size:
            self._idle.append(process)
        else:
            process.kill()
        self._give_back()

    def _give_back(self) -> None:
        self._lent -= 1
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def aclose(self) -> None:
        """End the processes that wait."""
        while self._idle:
            self._idle.pop().kill()
