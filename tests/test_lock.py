"""The lock that says which process runs a SQLite database's tasks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from agent.lock import Holder, Lock

HOLD = """
import sys, time
from pathlib import Path
from agent.lock import Lock
lock = Lock(Path(sys.argv[1]))
assert lock.acquire("daemon")
print("held", flush=True)
time.sleep(600)
"""


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    """The second is refused while the first holds the lock, and can take it afterwards."""
    path = tmp_path / "home" / "agent.lock"
    first, second = Lock(path), Lock(path)
    assert second.holder() is None
    assert first.acquire("daemon")
    assert first.acquire("daemon")
    assert not second.acquire("run")
    assert second.holder() == Holder(os.getpid(), "daemon")
    first.release()
    first.release()
    assert second.holder() is None
    with second:
        assert second.acquire("run")
        assert first.holder() == Holder(os.getpid(), "run")
    assert first.holder() is None


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    """The lock goes with the process, even when it is killed; nothing has to be cleaned up."""
    path = tmp_path / "agent.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            assert Lock(path).holder() == Holder(process.pid, "daemon")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    lock = Lock(path)
    assert lock.holder() is None
    assert lock.acquire("daemon")
    lock.release()


def test_a_half_written_lock_file_is_still_a_holder(tmp_path: Path) -> None:
    """What stands in the file is for people: without it the lock still tells that one lives."""
    path = tmp_path / "agent.lock"
    with Lock(path) as lock:
        assert lock.acquire("daemon")
        path.write_bytes(b"")
        assert Lock(path).holder() == Holder(0, "daemon")
