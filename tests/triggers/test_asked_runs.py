"""`catch_up: ask`: a person chooses which missed runs start."""

import pytest

from agent.core.clock import SECOND
from agent.triggers import asked_runs
from tests.support.approvals import question, say
from tests.support.engine import Engine
from tests.support.trigger_bench import BEGIN, TriggerBench

HOUR = 3600.0


def test_missed_runs_are_asked_about_in_the_same_transaction(bench: TriggerBench) -> None:
    """One range is missed, and one task asks about the newest of its instants."""
    bench.define(
        {
            "id": "it",
            "every_seconds": HOUR,
            "catch_up": "ask",
            "most": 2,
            "window_seconds": 3 * HOUR,
        }
    )
    bench.at(5 * HOUR + 120)
    bench.run_pass()
    assert bench.fates() == [(HOUR, 5 * HOUR, "missed", 5)]
    ((task_id,),) = bench.rows("SELECT id FROM tasks")
    document = bench.document(task_id)
    assert document["workflow"] == asked_runs.WORKFLOW
    newest = [BEGIN + int(hours * HOUR) * SECOND for hours in (4, 5)]
    assert document["input"]["instants"] == newest
    asked = document["input"]["message"]
    assert asked.startswith("tested:it missed 5 runs, from ")
    assert asked.endswith("Which should start now? All means the newest 2.")
    bench.run_pass()
    assert bench.rows("SELECT id FROM tasks") == [(task_id,)]


@pytest.mark.parametrize(
    ("answer", "expected"), [("latest", [3]), ("all", [1, 2, 3]), ("none", None)]
)
def test_the_answer_decides_what_starts(
    engine: Engine, answer: str, expected: list[int] | None
) -> None:
    """The built-in workflow passes the chosen instants to the daemon."""
    calls: list[tuple[str, list[int]]] = []

    async def start_missed(trigger_id: str, instants: list[int]) -> list[str]:
        calls.append((trigger_id, instants))
        return ["a-task"]

    engine.worker.services.start_missed = start_missed
    given = {"trigger": "flow:it", "message": "Which?", "instants": [1, 2, 3]}
    task_id = engine.submit(asked_runs.workflow(), given=given)
    say(engine, question(engine, task_id)["id"], "answer", value=answer)
    engine.wait(task_id, "succeeded")
    assert calls == ([] if expected is None else [("flow:it", expected)])


@pytest.mark.parametrize(("hours", "missed"), [(3, 2), (1, 1)])
def test_a_missed_instant_starts_once(bench: TriggerBench, hours: int, missed: int) -> None:
    """The row of an instant overrides its range, of one too, and a second try starts nothing."""
    bench.define({"id": "it", "every_seconds": HOUR, "catch_up": "none"})
    bench.at(hours * HOUR + 120)
    bench.run_pass()
    nominal = BEGIN + int(missed * HOUR) * SECOND
    for _ in range(2):
        plan = bench.schedules.plan_runs("tested:it", [nominal])
        assert plan is not None
        bench.fire(plan)
    assert len(bench.task_ids()) == 1
    assert sorted(each["status"] for each in bench.firings()) == ["late", "missed"]
