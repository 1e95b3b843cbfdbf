"""Faults at the syncs of a process, injected by strace.

A kill comes at the Nth sync of the whole process, whichever thread makes it: every sync stops the
process, and the tracer continues it or ends it. An error is given to the Nth sync of every
thread, since that is how strace counts.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from tests.crash.processes import PATIENCE_SECONDS, eventually
from tests.support.fork_server import ForkedProcess

_SYNCS = "fdatasync,fsync"
Error = Literal["EIO", "ENOSPC"]


def is_possible() -> bool:
    """Whether strace is installed and may trace our processes."""
    program = shutil.which("strace")
    if program is None:
        return False
    tried = subprocess.run(
        [program, "-f", "-o", os.devnull, "-e", f"inject={_SYNCS}:error=EIO:when=1", "true"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal."""
    # Its state comes after its name, which is in parentheses and may hold anything.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Tracer:
    """A strace on a process that is held at its start."""

    def __init__(self, process: ForkedProcess, log: Path, what: str) -> None:
        self.process = process
        self.syncs = 0
        self._log = log
        self._read = 0
        log.write_bytes(b"")
        # Let go before it holds itself, it would hold for ever.
        eventually(lambda: _is_stopped(process.pid), lambda: "the process does not hold itself")
        self._strace = subprocess.Popen(
            ["strace", "-f", "-p", str(process.pid), "-o", log, "-e", f"trace={_SYNCS}",
             "-e", f"inject={_SYNCS}:{what}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._strace.stderr is not None
        line = self._strace.stderr.readline()
        assert "attached" in line, line
        process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Detach from the process, which goes on if it is alive."""
        if self._strace.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._strace.wait(0.2)
            if self._strace.poll() is None:
                self._strace.terminate()
        self._strace.wait(PATIENCE_SECONDS)
        assert self._strace.stderr is not None
        self._strace.stderr.close()

    def lines(self) -> Iterator[str]:
        """Yield what strace has written since the last time."""
        with self._log.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        yield from whole.decode(errors="replace").splitlines()

    def watch(self, kill_at: int | None, is_over: Callable[[], bool]) -> bool:
        """Let syncs happen until the end; return whether the process was killed at the Nth.

        Only for a tracer that stops the process at each sync.
        """
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not is_over() and self.process.poll() is None:
            assert time.monotonic() < give_up, f"it does not end, after {self.syncs} syncs"
            for line in self.lines():
                if "--- SIGSTOP {" in line:
                    self.syncs += 1
                    if self.syncs == kill_at:
                        self.process.send_signal(signal.SIGKILL)
                        self.process.wait(PATIENCE_SECONDS)
                        return True
                if "SIGSTOP" in line:
                    self.process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
        return False
