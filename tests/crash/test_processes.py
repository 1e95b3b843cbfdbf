"""Real agents are killed: every task ends, and no effect happens twice."""

import random
import signal
import time
from pathlib import Path

import pytest

from agent.workflows.graph import Fanout, Graph, RetryPolicy, Step
from tests.crash.processes import Agents, agents, eventually
from tests.support.effort import short_or_full

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

KILLS = short_or_full(8, 15)
# Every kill counts as an attempt of what was running.
OFTEN = RetryPolicy(max_attempts=100, delay_seconds=0, jitter=False)


def _post(name: str, url: str, path: str, **options: object) -> Step:
    config = {"post": f"{url}/{{{{ task.id }}}}/{path}"}
    if options.pop("is_keyed", False):
        config["idempotent"] = True  # type: ignore[assignment]
    return Step.model_validate(
        {"name": name, "kind": "http", "config": config, "retry": OFTEN, **options}
    )


def _errand(url: str) -> Graph:
    """Return a task with every kind of effect."""
    between = Step(
        name="between",
        kind="python",
        config={"call": "tests.crash.remote_steps:pass_on"},
        depends_on=["first"],
        retry=OFTEN,
    )
    many = _post(
        "many", url, "many{{ parallel_index }}", depends_on=["first"], fanout=Fanout(count=3)
    )
    nap = Step(
        name="nap", kind="wait", config={"duration": 0.05}, depends_on=["between"], retry=OFTEN
    )
    last = _post("last", url, "last", depends_on=["many", "nap"])
    return Graph(name="errand", steps=[_post("first", url, "first"), between, many, nap, last])


EFFECTS = ("first", "many0", "many1", "many2", "last")


def test_a_daemon_killed_again_and_again(sqlite_url: str, tmp_path: Path) -> None:
    """Whenever SIGKILL comes, the next daemon continues; each effect happens exactly once."""
    chance = random.Random(20261116)
    with agents(tmp_path, sqlite_url) as those:
        task_ids: list[str] = []
        for number in range(KILLS):
            daemon = those.start("up")
            task_ids += [those.submit(_errand(those.world.url)) for _ in range(2)]
            if number % 4 != 0:
                # Most times it gets as far as to work; sometimes it dies while it starts.
                those.wait_until_alive(daemon)
            time.sleep(chance.uniform(0, 0.25))
            assert those.end(daemon, signal.SIGKILL) == -signal.SIGKILL
            those.are_ended(task_ids)
        daemon = those.start("up")
        those.wait_until_alive(daemon)
        eventually(lambda: those.are_ended(task_ids), those.describe)
        assert those.end(daemon, signal.SIGTERM) == 0
        assert those.violations() == []
        statuses = those.rows("SELECT DISTINCT status FROM tasks")
        assert statuses == [("succeeded",)], those.describe()
        expected = {f"/{task_id}/{name}": 1 for task_id in task_ids for name in EFFECTS}
        assert dict(those.world.counts()) == expected


def _held(those: Agents, gate: Path) -> Graph:
    config = {
        "call": "tests.crash.remote_steps:hold",
        "with": {"gate": str(gate), "url": f"{those.world.url}/{{{{ task.id }}}}/held"},
    }
    held = Step(name="held", kind="python", config=config, retry=OFTEN)
    keyed = _post("keyed", those.world.url, "keyed", is_keyed=True, depends_on=["held"])
    return Graph(name="held", steps=[held, keyed])


def test_workers_killed_and_stopped_beyond_their_lease(postgres_url: str, tmp_path: Path) -> None:
    """Live workers take over from dead and stopped ones; a stopped one gets a new identity."""
    # A slow machine may have anybody declared dead: what follows then must not take long either.
    settings = {
        "AGENT_ENGINE__LEASE_SECONDS": "3",
        "AGENT_ENGINE__SLOTS": "2",
        "AGENT_ENGINE__SOLO_SECONDS": "1",
        "AGENT_STEPS__CALL_SECONDS": "20",
    }
    gate = tmp_path / "gate"
    with agents(tmp_path, postgres_url, settings) as those:
        stopped, killed, left = workers = [those.start("worker") for _ in range(3)]
        first = {process.pid: those.wait_until_alive(process) for process in workers}
        task_ids = [those.submit(_held(those, gate)) for _ in range(6)]

        def are_all_held() -> bool:
            # Six steps fill the slots of all three: each of them is in the middle of two.
            found = those.rows("SELECT count(*) FROM steps WHERE status = 'running'")
            return found == [(6,)]

        eventually(are_all_held, those.describe)
        stopped.send_signal(signal.SIGSTOP)
        those.end(killed, signal.SIGKILL)
        eventually(
            lambda: not those.live_identities(stopped) and not those.live_identities(killed),
            those.describe,
        )
        gate.touch()
        eventually(lambda: those.are_ended(task_ids), those.describe)

        stopped.send_signal(signal.SIGCONT)
        again = those.wait_until_alive(stopped)
        assert again != first[stopped.pid]
        those.end(left, signal.SIGTERM)
        # Only the one that came back can run these.
        more = [those.submit(_held(those, gate)) for _ in range(3)]
        eventually(lambda: those.are_ended(more), those.describe)
        those.end(stopped, signal.SIGTERM)

        assert those.violations() == []
        assert those.rows("SELECT DISTINCT status FROM tasks") == [("succeeded",)]
        _check_effects(those, task_ids + more)


def _check_effects(those: Agents, task_ids: list[str]) -> None:
    effects = those.world.effects()
    for task_id in task_ids:
        held = [key for path, key in effects if path == f"/{task_id}/held"]
        assert len(held) == 1, those.describe()
        # A remote that honours the key has done it once, however often it was asked.
        keyed = {key for path, key in effects if path == f"/{task_id}/keyed"}
        assert len(keyed) == 1, those.describe()
