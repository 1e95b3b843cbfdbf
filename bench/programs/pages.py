"""The dashboard on a large database: first bytes, and what open pages cost the worker.

The database has a hundred thousand ended tasks and a thousand that wait. First each page is fetched
again and again, by a viewer without a script, so that it is read and rendered when anything changed.
Then W runs, with open pages and without in turn. The pages are those of browsers: each keeps a stream
open and fetches itself when the stream tells of a change. They run in a process of their own.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import harmonic_mean
from typing import Any, Final

from agent.config.execution import EngineSettings
from agent.config.settings import ServerSettings, Settings
from agent.server.server_thread import Server
from agent.tasks.rules.creation import Submission
from bench import copies, definitions, load, process, usage, viewers
from bench.session import Session, session

_IN_FLIGHT: Final = 50
_PATIENCE_SECONDS: Final = 30.0


def main(
    url: str,
    ended: int = 100_000,
    live: int = 1000,
    fetches: int = 30,
    tasks: int = 10_000,
    pages: int = 50,
    rounds: int = 6,
) -> dict[str, Any]:
    """Measure on a migrated database."""
    return asyncio.run(_measure(url, ended, live, fetches, tasks, pages, rounds))


async def _measure(
    url: str, ended: int, live: int, fetches: int, tasks: int, pages: int, rounds: int
) -> dict[str, Any]:
    engine = EngineSettings(slots=50, batch=64)
    with tempfile.TemporaryDirectory(prefix="agent-pages-") as home:
        async with session(url, engine) as opened:
            await _fill(opened, ended, live)
            settings = Settings(base=Path(home), engine=engine, server=ServerSettings(port=0))
            server = Server(settings, opened.database, opened.worker)
            server.start()
            assert await asyncio.to_thread(server.wait_until_ready, _PATIENCE_SECONDS)
            try:
                found = await _first_bytes(opened, server, fetches)
                found |= await _beside_w(opened, server, tasks, pages, rounds)
            finally:
                server.stop()
                await server.closed()
    return found


async def _fill(opened: Session, ended: int, live: int) -> None:
    done, waiting = Submission(definitions.chain()), Submission(definitions.signalled())
    await opened.run_task(done)
    await opened.worker.submit(waiting)

    def copy() -> None:
        with opened.database.connect("writer") as tx, tx.transaction():
            copies.multiply(tx, done.task_id, ended, series=1)
            copies.multiply(tx, waiting.task_id, live, series=2)
        copies.settle_down(opened.database)

    await asyncio.to_thread(copy)


def _cookie(server: Server) -> str:
    code, _ = server.sessions.create_link("bench", ["admin"])
    return f"{server.cookie}={server.sessions.begin(code).token}"


def _paths(opened: Session) -> dict[str, str]:
    """Return the addresses that are measured."""
    from agent.server.pages.page_set import PAGES

    plain = [page.path for registry in PAGES for page in registry.pages if "{" not in page.path]
    chosen = {path: path for path in plain if path != "/tasks/bulk"}
    task = "01900002-0000-7000-8000-000000000007"
    chosen["/tasks?activity"] = "/tasks?activity=succeeded"
    chosen["/tasks?workflow"] = f"/tasks?workflow={definitions.chain().name}"
    if any(page.path == "/tasks/{task_id}" for registry in PAGES for page in registry.pages):
        chosen["/tasks/{id}"] = f"/tasks/{task}"
    return chosen


async def _first_bytes(opened: Session, server: Server, fetches: int) -> dict[str, Any]:
    """Fetch each page after a change; return the slowest page's median, and all of them."""
    page = await viewers.open_page(server.url, _cookie(server))
    medians: dict[str, float] = {}
    for name, path in _paths(opened).items():
        times = []
        for number in range(fetches + 2):
            await opened.run_task(Submission(definitions.chain(1)))
            start = time.perf_counter()
            status, _ = await page.fetch(path)
            if number >= 2:
                times.append(time.perf_counter() - start)
            assert status == 200, (path, status)
        medians[name] = usage.p50_ms(times)
    page.close()
    return {"first_byte_ms": max(medians.values()), "first_byte_by_page_ms": medians}


async def _beside_w(
    opened: Session, server: Server, tasks: int, pages: int, rounds: int
) -> dict[str, Any]:
    """Run W with and without open pages in turn; return the mean throughput of each.

    Which of the two comes first alternates: a database that grows slows down both alike.
    """
    without: list[float] = []
    with_pages: list[float] = []
    paths = list(_paths(opened).values())
    seen = 0
    for number in range(2 * rounds):
        if number % 4 in (0, 3):
            without.append(await _w(opened, tasks))
            continue
        with _viewers(server, pages, paths) as fetched:
            with_pages.append(await _w(opened, tasks))
            seen += await asyncio.to_thread(fetched)
    alone, beside = harmonic_mean(without), harmonic_mean(with_pages)
    return {
        "pages": pages,
        "steps_per_s": round(beside, 1),
        "steps_per_s_without": round(alone, 1),
        "cost_percent": round((1 - beside / alone) * 100, 1),
        "fetched": seen,
    }


async def _w(opened: Session, tasks: int) -> float:
    run_one = lambda: opened.run_task(Submission(definitions.chain()))  # noqa: E731
    figures = await load.put_on(run_one, opened.commits, _IN_FLIGHT, tasks)
    return float(figures["steps_per_s"])


@contextmanager
def _viewers(server: Server, pages: int, paths: list[str]) -> Iterator[Any]:
    """Open pages in another process; the yielded function ends them and returns what they fetched."""
    program = subprocess.Popen(
        [sys.executable, "-m", "bench.viewers", server.url, _cookie(server), str(pages), *paths],
        cwd=process.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline().strip() == "open"

    def end() -> int:
        out, _ = program.communicate("end\n", timeout=_PATIENCE_SECONDS)
        return int(out.split()[-1])

    try:
        yield end
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()


if __name__ == "__main__":
    process.answer(main)
