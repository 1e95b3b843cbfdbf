"""A queue that several processes drain: they connect, wait for one word, and work until it is empty.

A worker's program prints `ready`, starts at the first line on its standard input, stops at the end of
it, and answers with its processor time (`bench.drain.answer_for`).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Final

from bench import process

_POLL_SECONDS: Final = 0.01
_LONGEST_SECONDS: Final = 600.0


def drain(
    program: str, given: dict[str, Any], workers: int, is_empty: Callable[[], bool]
) -> tuple[float, float]:
    """Return the seconds until a queue was empty, and the processor time of the workers."""
    command = [sys.executable, "-m", f"bench.programs.{program}", json.dumps(given)]
    running = [
        subprocess.Popen(
            command, cwd=process.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(workers)
    ]
    try:
        for worker in running:
            assert _pipe(worker.stdout).readline() == "ready\n"
        start = time.perf_counter()
        for worker in running:
            _pipe(worker.stdin).write("go\n")
            _pipe(worker.stdin).flush()
        while not is_empty():
            if time.perf_counter() - start > _LONGEST_SECONDS:
                raise TimeoutError(f"{program}: the queue does not become empty")
            time.sleep(_POLL_SECONDS)
        elapsed = time.perf_counter() - start
        answers = [json.loads(worker.communicate(timeout=60)[0]) for worker in running]
    finally:
        for worker in running:
            worker.kill()
            worker.wait()
    return elapsed, sum(answer["cpu_seconds"] for answer in answers)


def serve(start: Callable[[], None], stop: Callable[[], None]) -> dict[str, Any]:
    """Be a worker: start at the word, stop at the end of it; both return at once."""
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    start()
    sys.stdin.read()
    cpu = time.process_time() - cpu
    stop()
    return {"cpu_seconds": cpu}


def figures(jobs: int, elapsed: float, cpu_seconds: float) -> dict[str, Any]:
    """Return what a row says of a drained queue."""
    return {
        "steps_per_s": round(jobs / elapsed, 1),
        "cpu_ms_per_task": round(cpu_seconds * 1000 / jobs, 3),
    }


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
