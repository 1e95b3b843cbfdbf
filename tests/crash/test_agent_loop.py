"""An agent's loop of ten turns crashes at each of its commits: its transcript stays the same."""

import itertools
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.store.db.database import Database
from agent.tasks.errors import RefusedError
from agent.tasks.worker import failures
from agent.workflows.graph import Graph, Step
from tests.crash.faults import Way
from tests.crash.shapes import AT_ONCE, Shape
from tests.crash.story import Story
from tests.support.approvals import resolve
from tests.support.effort import short_or_full
from tests.support.engine import Engine, HandClock, graph

TURNS = 10
acted: Counter[tuple[str, int]] = Counter()
"""How often the tool acted, by task and number: a record that no crash touches."""


async def act(task: str, n: int) -> str:
    """Act on the world."""
    acted[(task, n)] += 1
    return f"did {n}"


def agent_step(turns: int, name: str = "it") -> Step:
    """Return a step whose model asks for the tool in each turn but the last."""
    script: list[Any] = [
        {
            "tool_uses": [{"name": "act", "arguments": {"task": "{{ task.id }}", "n": 1000 + n}}],
            "tokens_in": 10,
            "tokens_out": 5,
        }
        for n in range(turns)
    ]
    script.append({"text": "done", "tokens_in": 10, "tokens_out": 5})
    tool = {"python": "tests.crash.test_agent_loop:act", "approve": "never"}
    config = {
        "goal": f"act\n```echo\n{json.dumps(script, indent=1)}\n```",
        "model": "echo",
        "max_turns": turns + 1,
        "tools": {"act": tool},
    }
    return Step(name=name, kind="agent", config=config, retry=AT_ONCE)


class LoopStory(Story):
    """An agent's task, and what must be recorded of it."""

    def _answer(self, task_id: str, title: str, call_id: str) -> None:
        ((request,),) = self._rows("SELECT request FROM tool_calls WHERE id = :id", id=call_id)
        n = json.loads(request)["arguments"]["n"]
        verdict = ("done", f"did {n}") if acted[(task_id, n)] else ("retry", None)
        try:
            resolve(self.plain, task_id, title, *verdict, clock=self.clock)
        except RefusedError:
            # Its late result came first.
            return

    def check(self) -> None:
        """Check the record and the effects against one run of the loop."""
        super().check()
        rows = self._rows(
            "SELECT c.number, c.response, c.tokens_in, c.tokens_out FROM tool_calls AS c"
            " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
            " WHERE c.task_id = :id AND o.status = 'succeeded' ORDER BY c.number",
            id=self.task_id,
        )
        assert [row[0] for row in rows] == list(range(1, 2 * TURNS + 2)), self.describe()
        answers = [json.loads(row[1]) for row in rows[::2]]
        wished = [
            use["arguments"]["n"] for answer in answers for use in answer.get("tool_uses", ())
        ]
        assert wished == [1000 + n for n in range(TURNS)]
        did = [json.loads(row[1]) for row in rows[1::2]]
        texts = [each["text"] if isinstance(each, dict) else each for each in did]
        assert texts == [f"did {n}" for n in wished]
        assert [acted[(self.task_id, n)] for n in wished] == [1] * TURNS, self.describe()
        assert [row[2:] for row in rows[::2]] == [(10, 5)] * (TURNS + 1)
        # An unknown call counts as spent: its whole reservation.
        ((lost,),) = self._rows(
            "SELECT coalesce(sum(c.reserved_tokens), 0) FROM tool_calls AS c"
            " JOIN idempotency_outcomes AS o ON o.idempotency_key = c.idempotency_key"
            " WHERE c.task_id = :id AND o.status = 'unknown'",
            id=self.task_id,
        )
        ((used, reserved),) = self._rows("SELECT tokens_used, tokens_reserved FROM daily_spend")
        assert used + reserved == 15 * (TURNS + 1) + lost, self.describe()
        ((took, open_ms),) = self._rows(
            "SELECT coalesce(sum(latency_ms), 0),"
            " coalesce(sum(CASE WHEN latency_ms IS NULL THEN reserved_ms END), 0)"
            " FROM tool_calls WHERE model IS NOT NULL"
        )
        assert self._rows("SELECT ms_used, ms_reserved FROM daily_spend") == [(took, open_ms)]


@pytest.mark.parametrize("way", [Way.DIED_BEFORE, Way.DIED_AFTER], ids=["before", "after"])
def test_a_loop_survives_a_crash_at_every_commit(
    way: Way, sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model call is repeated, no recorded call runs twice, the spend is exact."""
    monkeypatch.setattr(failures, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.01)
    shape = Shape([agent_step(TURNS)], once=[])
    stride = short_or_full(2, 1)
    for at in itertools.count(1 + (way is Way.DIED_AFTER) % stride, stride):
        path = tmp_path / f"{at}.db"
        shutil.copyfile(sqlite_template, path)
        if not LoopStory(f"sqlite:///{path}", shape, at, way).run():
            break
    assert at > 2 * TURNS


def test_the_cost_of_a_turn_does_not_grow(sqlite_template: Path, tmp_path: Path) -> None:
    """In a loop of 200 turns the bytes written for a turn do not grow with the earlier ones."""
    path = tmp_path / "long.db"
    shutil.copyfile(sqlite_template, path)
    engine = Engine(Database(f"sqlite:///{path}", clock=HandClock()))
    try:
        task = engine.run(graph(agent_step(200)))
        assert task["status"] == "succeeded", task["error"]
        calls = engine.rows(
            "SELECT number, length(request) + length(response) + length(action)"
            " + length(idempotency_key) + length(remote_key) FROM tool_calls"
        )
        events = engine.rows(
            "SELECT length(coalesce(data, '')) FROM events WHERE type <> 'step.succeeded'"
            " ORDER BY seq"
        )
    finally:
        engine.stop()
        engine.close()
    sizes = dict(calls)
    early = sum(sizes[number] for number in range(21, 61))
    late = sum(sizes[number] for number in range(361, 401))
    assert late <= early * 1.1
    event_sizes = [size for (size,) in events]
    assert sum(event_sizes[-150:-50]) <= sum(event_sizes[50:150]) * 1.1


@pytest.mark.measured
def test_the_engines_own_cpu_per_call_is_small(sqlite_template: Path, tmp_path: Path) -> None:
    """Less than 5 ms of CPU for each call of the model or of a tool."""
    path = tmp_path / "measured.db"
    shutil.copyfile(sqlite_template, path)
    engine = Engine(Database(f"sqlite:///{path}", clock=HandClock()))
    turns = 50
    try:
        engine.run(graph(agent_step(2), name="first"))
        least = min(_cpu_seconds(engine, graph(agent_step(turns))) for _ in range(3))
    finally:
        engine.stop()
        engine.close()
    assert least / (2 * turns + 1) < 0.005


def _cpu_seconds(engine: Engine, measured: Graph) -> float:
    """Return the CPU time that a task takes of this process; other load can only add to it."""
    before = time.process_time()
    task_id = engine.submit(measured)
    while engine.status(task_id) == "running":
        time.sleep(0.05)
    assert engine.status(task_id) == "succeeded"
    return time.process_time() - before
