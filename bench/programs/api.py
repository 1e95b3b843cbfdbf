"""The HTTP API of a real daemon under load: reads and new tasks, beside steps that take a second.

Requests come at fixed instants whether or not the ones before were answered, and each is timed from
its instant: an answer that was held up counts in full. Then the same again without a pause between
requests, far more than the daemon can do. At the end every task that was acknowledged must be there
and must have succeeded.
"""

import asyncio
import itertools
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench import process, usage
from bench.daemon import running_daemon
from bench.wire import Answer, Wires

_PATIENCE_SECONDS: Final = 120.0
_CONNECTIONS: Final = 400
_STEPS: Final = """\
import asyncio

async def nap():
    await asyncio.sleep(1)

async def noop():
    return 1
"""
_QUICK: Final = 'name: quick\nsteps: {one: {python: {call: "api_steps:noop"}}}\n'
_NAPS: Final = """\
name: naps
inputs: {{count: {{type: integer}}}}
steps:
  all: {{foreach: "{{{{ range(inputs.count) | list }}}}", python: {{call: "api_steps:nap"}}}}
"""


def main(
    rate: int = 500,
    seconds: float = 20.0,
    flood_seconds: float = 5.0,
    flooders: int = 350,
    naps: int = 50,
    url: str | None = None,
    max_requests: int | None = None,
) -> dict[str, Any]:
    """Measure on a daemon of its own; `url` names a database, SQLite in a new directory if not."""
    settings = {
        # The naps hold theirs all the time, and more of them when the machine is slow.
        "AGENT_ENGINE__SLOTS": str(2 * naps + 50),
    }
    if url is not None:
        settings["AGENT_DATABASE__URL"] = url
    if max_requests is not None:
        settings["AGENT_SERVER__MAX_REQUESTS"] = str(max_requests)
    with (
        tempfile.TemporaryDirectory(prefix="agent-api-") as directory,
        _daemon(Path(directory), settings) as (process_id, port, token),
    ):
        load = _Load(port, token, process_id)
        return asyncio.run(load.run(rate, seconds, flood_seconds, flooders, naps))


@contextmanager
def _daemon(directory: Path, settings: dict[str, str]) -> Iterator[tuple[int, int, str]]:
    """Run a daemon with the workflows of the load."""
    workflows = directory / "workflows"
    workflows.mkdir()
    (workflows / "api_steps.py").write_text(_STEPS, encoding="utf-8")
    (workflows / "quick.yaml").write_text(_QUICK, encoding="utf-8")
    (workflows / "naps.yaml").write_text(_NAPS.format(), encoding="utf-8")
    with running_daemon(directory, settings) as found:
        yield found


class _Load:
    """Requests to one daemon, and what became of them."""

    def __init__(self, port: int, token: str, process_id: int) -> None:
        self._wires = Wires("127.0.0.1", port, token, _CONNECTIONS)
        self._process_id = process_id
        self._numbers = itertools.count()
        self._acknowledged: set[str] = set()
        self._latest = ""
        self._least_in_flight = sys.maxsize

    async def run(
        self, rate: int, seconds: float, flood_seconds: float, flooders: int, naps: int
    ) -> dict[str, Any]:
        """Put the load on, check that nothing was lost, and return what was measured."""
        async with self._wires:
            await self._until_there()
            napping = asyncio.create_task(self._keep_napping(naps))
            await self._until_napping(naps)
            await self._at_rate(rate, 2.0)
            watching = asyncio.create_task(self._watch())
            cpu = usage.cpu_seconds(self._process_id)
            latencies, codes = await self._at_rate(rate, seconds)
            cpu = usage.cpu_seconds(self._process_id) - cpu
            watching.cancel()
            flood_codes = await self._flood(flooders, flood_seconds)
            napping.cancel()
            await self._check()
        ordered = sorted(latencies)
        return {
            "rate": rate,
            "requests": len(ordered),
            "p50_ms": usage.p50_ms(ordered),
            "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1000, 3),
            "max_ms": round(ordered[-1] * 1000, 3),
            "codes": codes,
            "cpu_percent": round(cpu / seconds * 100, 1),
            "rss_mb": usage.rss_mb(self._process_id),
            "steps_in_flight_at_least": self._least_in_flight,
            "flood_requests_per_s": round(sum(flood_codes.values()) / flood_seconds, 1),
            "flood_codes": flood_codes,
            "tasks_acknowledged": len(self._acknowledged),
        }

    async def _at_rate(self, rate: int, seconds: float) -> tuple[list[float], dict[int, int]]:
        latencies: list[float] = []
        codes: Counter[int] = Counter()

        async def one(number: int, due: float) -> None:
            answer = await self._ask(number)
            latencies.append(time.perf_counter() - due)
            codes[answer.status] += 1

        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for count in range(int(rate * seconds)):
                due = start + count / rate
                pause = due - time.perf_counter()
                if pause > 0:
                    await asyncio.sleep(pause)
                group.create_task(one(next(self._numbers), due))
        return latencies, dict(codes)

    async def _flood(self, flooders: int, seconds: float) -> dict[int, int]:
        codes: Counter[int] = Counter()
        until = time.perf_counter() + seconds

        async def one() -> None:
            while time.perf_counter() < until:
                answer = await self._ask(next(self._numbers))
                codes[answer.status] += 1
                if answer.status not in (200, 201, 429, 503):
                    raise RuntimeError(f"{answer.status}: {answer.body!r}")

        async with asyncio.TaskGroup() as group:
            for _ in range(flooders):
                group.create_task(one())
        return dict(codes)

    async def _ask(self, number: int) -> Answer:
        """Send one request of the mixture: one in five starts a task, every other one by key."""
        match number % 10:
            case 0:
                return await self._start(f"key-{number}")
            case 5:
                return await self._start(None)
            case 1 | 2 | 6:
                return await self._wires.ask("GET", f"/api/v1/tasks/{self._latest}")
            case 3:
                return await self._wires.ask("GET", "/api/v1/tasks?limit=20")
            case 4:
                return await self._wires.ask("GET", "/api/v1/approvals")
            case 7:
                return await self._wires.ask("GET", f"/api/v1/tasks/{self._latest}/steps")
            case 8:
                return await self._wires.ask("GET", f"/api/v1/events?task={self._latest}")
            case _:
                return await self._wires.ask("GET", "/api/v1/workflows/quick")

    async def _start(self, key: str | None) -> Answer:
        answer = await self._wires.ask("POST", "/api/v1/workflows/quick/tasks", {}, key)
        if answer.status == 201:
            self._latest = str(answer.json()["id"])
            self._acknowledged.add(self._latest)
        return answer

    async def _until_there(self) -> None:
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < give_up:
            if (await self._start(None)).status == 201:
                return
            await asyncio.sleep(0.1)
        raise RuntimeError("the daemon does not take tasks")

    async def _keep_napping(self, naps: int) -> None:
        """Start a tenth of the steps fifteen times a second, so that never fewer are in flight."""
        body = {"input": {"count": max(1, naps // 10)}}
        while True:
            await self._wires.ask("POST", "/api/v1/workflows/naps/tasks", body)
            await asyncio.sleep(1 / 15)

    async def _until_napping(self, naps: int) -> None:
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while (await self._in_flight() or 0) < naps:
            if time.monotonic() > give_up:
                raise RuntimeError("the steps that take a second do not run")
            await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            found = await self._in_flight()
            if found is not None:
                self._least_in_flight = min(self._least_in_flight, found)

    async def _in_flight(self) -> int | None:
        """Return how many steps run; None when the daemon has no time to say."""
        answer = await self._wires.ask("GET", "/metrics")
        found = re.search(rb"^agent_attempts_in_flight (\d+)", answer.body, re.MULTILINE)
        return int(found[1]) if found else None

    async def _check(self) -> None:
        """Wait until every task has ended; each that was acknowledged must have succeeded."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while await self._list("running", 1):
            if time.monotonic() > give_up:
                raise RuntimeError("tasks do not come to their end")
            await asyncio.sleep(0.2)
        missing = self._acknowledged - await self._list("succeeded", None)
        if missing:
            raise RuntimeError(f"{len(missing)} acknowledged tasks are lost: {sorted(missing)[:5]}")

    async def _list(self, status: str, most: int | None) -> set[str]:
        found: set[str] = set()
        cursor = ""
        while True:
            page = await self._wires.ask(
                "GET", f"/api/v1/tasks?status={status}&workflow=quick&limit={most or 500}{cursor}"
            )
            if page.status in (429, 503):
                await asyncio.sleep(0.2)
                continue
            document = page.json()
            found |= {task["id"] for task in document["tasks"]}
            if most is not None or document["next"] is None:
                return found
            cursor = f"&cursor={document['next']}"


if __name__ == "__main__":
    process.answer(main)
