"""The faults that a siege applies to agents and to their database, at random moments."""

import contextlib
import os
import random
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Final

from tests.siege.household import CALL_SECONDS, LEASE_SECONDS, SEND_SECONDS, Household
from tests.support.postgres import PATIENCE_SECONDS, PostgresServer

KILL, STARTING, AT_EFFECT = (
    "killed while it worked",
    "killed while it started",
    "killed at an effect",
)
STOP, STOP_KILL, TERM = "stopped past its lease", "stopped, then killed", "restarted by SIGTERM"
CRASH, FAST = "database server killed", "database server restarted"

ALL: Final = (KILL, STARTING, AT_EFFECT, TERM, STOP, STOP_KILL, CRASH, FAST)
_ON_SQLITE: Final = {KILL: 25, STARTING: 15, AT_EFFECT: 35, STOP: 5, STOP_KILL: 5, TERM: 15}
_ON_POSTGRES: Final = {
    KILL: 20, STARTING: 8, AT_EFFECT: 27, STOP: 15, STOP_KILL: 5, TERM: 10, CRASH: 8, FAST: 7,
}  # fmt: skip
_TERM_SECONDS: Final = 30.0
_RECOVERY_SECONDS: Final = 60.0


class Server(PostgresServer):
    """A PostgreSQL that is killed and restarted under its clients."""

    def __init__(self) -> None:
        super().__init__(is_durable=True)

    def crash(self) -> None:
        """Kill every process of it at once, and start it again."""
        assert self._process is not None
        for process_id in (self._process.pid, *_children_of(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)
        self._come_back()

    def restart_fast(self) -> None:
        """End it in order, which breaks every connection, and start it again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE_SECONDS)
        self._come_back()

    def _come_back(self) -> None:
        give_up = time.monotonic() + _RECOVERY_SECONDS
        while True:
            try:
                self._launch()
            except RuntimeError:
                # A process of the killed server may still hold its shared memory for a moment.
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.2)
            else:
                return


class Besieger:
    """Applies one fault after another, drawn from a seed."""

    def __init__(self, household: Household, server: Server | None, remote: str, seed: str) -> None:
        self._household = household
        self._server = server
        self._remote = remote
        self._chance = random.Random(f"{seed} faults")
        self.counts: Counter[str] = Counter()

    def strike(self) -> None:
        """Apply one fault, and have everything running again."""
        weights = _ON_SQLITE if self._server is None else _ON_POSTGRES
        (fault,) = self._chance.choices(list(weights), list(weights.values()))
        if fault != STARTING and (self._server is None or self._chance.random() < 0.7):
            # An agent that has just been started does nothing yet, and without its API no
            # task is started and no question answered.
            self._household.wait_until_ready()
        if fault == AT_EFFECT:
            self._wait_for_effect()
        elif fault != STARTING:
            time.sleep(self._chance.uniform(0.2, 2.0))
        if fault in (CRASH, FAST):
            assert self._server is not None
            if fault == CRASH:
                self._server.crash()
            else:
                self._server.restart_fast()
        else:
            self._strike_process(fault)
        self.counts[fault] += 1
        self._household.start_missing()

    def _strike_process(self, fault: str) -> None:
        process = self._chance.choice(self._household.processes)
        if fault == STARTING:
            process.kill()
            process.wait(PATIENCE_SECONDS)
            self._household.start_missing()
            time.sleep(self._chance.uniform(0.0, 1.5))
            process = self._chance.choice(self._household.processes)
        if fault in (STOP, STOP_KILL):
            if self._stop(process, kills=fault == STOP_KILL):
                return
        elif fault == TERM:
            process.send_signal(signal.SIGTERM)
        else:
            process.kill()
        try:
            process.wait(_TERM_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError("an agent did not end within 30 s of SIGTERM") from None

    def _stop(self, process: subprocess.Popen[bytes], *, kills: bool) -> bool:
        """Stop a process for longer than the lease; return whether it was continued.

        Others take over meanwhile. A request that is held up for longer than an effect's own time
        could be caught by the remote alone, so a process that was stopped that long is not let go on.
        """
        begun = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_SECONDS + self._chance.uniform(0.2, 0.8))
        is_too_long = time.monotonic() - begun > SEND_SECONDS + CALL_SECONDS - 0.3
        goes_on = not kills and not is_too_long
        process.send_signal(signal.SIGCONT if goes_on else signal.SIGKILL)
        return goes_on

    def _wait_for_effect(self) -> None:
        """Return when a remote has acted and not yet answered."""
        with contextlib.suppress(urllib.error.URLError, TimeoutError):
            urllib.request.urlopen(f"{self._remote}/next?seconds=5", timeout=10).close()


def _children_of(process_id: int) -> list[int]:
    path = Path(f"/proc/{process_id}/task/{process_id}/children")
    return [int(child) for child in path.read_text().split()]
