"""A real daemon to measure: `agent up` in a directory of its own, on a free port."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import process

_PATIENCE_SECONDS: Final = 120.0


@contextmanager
def running_daemon(directory: Path, settings: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Run `agent up` in a directory; give its process, its port and its token."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_")}
    environment |= {
        "PYTHONPATH": str(process.ROOT),
        "NO_COLOR": "1",
        "AGENT_SERVER__PORT": "0",
        "AGENT_LOG__LEVEL": "warning",
        **settings,
    }
    with (directory / "daemon.log").open("w+", encoding="utf-8") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "agent.cli", "up"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert daemon.stdout is not None
            for line in daemon.stdout:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                raise RuntimeError((directory / "daemon.log").read_text())
            token = (directory / "data" / "token").read_text(encoding="utf-8").strip()
            yield daemon.pid, int(found[1]), token
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.communicate(timeout=_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.communicate()
