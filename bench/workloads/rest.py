"""A daemon with nothing to do: what it keeps of memory, and what it uses of a processor."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench import progress, usage
from bench.options import Options
from bench.process import ROOT
from bench.rows import Row, row
from bench.stores import Stores

_PATIENCE_SECONDS: Final = 60


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure on each store."""
    if "agent" not in asked.engines:
        return
    if not usage.can_watch_others():
        progress.say("rest is left out: this system has no /proc to watch another process by")
        return
    settle_seconds, seconds = (0.2, 1.0) if asked.is_quick else (5.0, 15.0)
    for store in asked.stores:
        with stores.directory() as directory, stores.fresh(store) as url:
            with daemon(url, directory) as process_id:
                figures = watch(process_id, settle_seconds, seconds)
            yield row("agent", store, "rest", **figures)


def watch(process_id: int, settle_seconds: float, seconds: float) -> dict[str, Any]:
    """Let a daemon come to rest, and watch it."""
    time.sleep(settle_seconds)
    before = usage.cpu_seconds(process_id)
    start = time.perf_counter()
    time.sleep(seconds)
    used = usage.cpu_seconds(process_id) - before
    share = used / (time.perf_counter() - start)
    return {"rss_mb": usage.rss_mb(process_id), "cpu_percent": round(share * 100, 2)}


@contextmanager
def daemon(url: str, directory: Path) -> Iterator[int]:
    """Run a daemon for as long as the block lasts; give its process id."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_")}
    environment |= {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "AGENT_DATABASE__URL": url}
    with (directory / "daemon.log").open("w+", encoding="utf-8") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "agent.cli", "up"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            assert daemon.stdout is not None
            if b"is running" not in daemon.stdout.readline():
                raise RuntimeError((directory / "daemon.log").read_text())
            yield daemon.pid
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.communicate(timeout=_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.communicate()
