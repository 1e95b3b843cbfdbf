"""The overview of a task is bounded in size and in statements, whatever its graph is."""

from typing import Any

import pytest

from agent.core.clock import SECOND
from agent.store.read import health, overview, recent_events, spend, workflow_list
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models.task_overview import task_overview
from agent.tasks.state.graph_cache import GraphCache
from agent.workflows.graph import Fanout
from tests.support.engine import Engine, graph, step
from tests.support.statements import record_statements


def _overview(engine: Engine, task_id: str) -> tuple[dict[str, Any], int]:
    """Return the overview, and how many different statements it took."""
    graphs = GraphCache()
    with engine.database.connect("reader") as connection:
        asked = record_statements(connection)
        document = task_overview(connection, task_id, graphs, 0)
    return document, len(asked)


def _grouped(count: int) -> Any:
    items = [{"number": number} for number in range(count)]
    return graph(
        step("a", "echo", given={"value": 1}),
        step("g", "echo", ["a"], given={"value": "{{ item }}"}, fanout=Fanout(items=items)),
        step("z", "echo", ["g"], given={"value": 2}),
    )


def test_a_group_is_counts_and_not_items(engine: Engine) -> None:
    """A task with many items has as many entries as one with few, by as many statements."""
    small, few = _overview(engine, engine.run(_grouped(2))["id"])
    large, many = _overview(engine, engine.run(_grouped(120))["id"])
    assert few == many <= 20
    assert len(small["steps"]) == len(large["steps"]) == 3
    assert large["steps"][1]["items"] == {"succeeded": 120}
    assert large["items"] == []
    assert large["steps"][1]["depends_on"] == [0]


def test_of_many_items_the_times_are_read_together(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one by one, and none is left out; steps keep their changes."""
    task_id = engine.run(_grouped(30))["id"]
    each, _ = _overview(engine, task_id)
    assert len({step_id for step_id, *_ in each["changes"]}) == 33
    assert each["item_runs"] == []
    monkeypatch.setattr(overview, "MAX_CHANGED_ITEMS", 29)
    together, _ = _overview(engine, task_id)
    assert len({step_id for step_id, *_ in together["changes"]}) == 3
    runs = together["item_runs"]
    assert {(index, status) for index, status, *_ in runs} == {(1, "succeeded")}
    assert sum(number for _, _, number, _, _ in runs) == 30
    times = [at for _, index, _, _, at in each["changes"] if index == 1]
    assert max(times) >= max(end for *_, end in runs) >= min(start for *_, start, _ in runs)


def test_failed_items_are_listed_up_to_a_bound(engine: Engine) -> None:
    """What needs attention is shown, and never more than a page can."""
    fails = graph(
        step(
            "g",
            "fail",
            fanout=Fanout(items=list(range(overview.MAX_ITEMS + 5))),
            retry={"max_attempts": 1},
        )
    )
    document, _ = _overview(engine, engine.run(fails)["id"])
    failed = [item for item in document["items"] if item["status"] == "failed"]
    assert 0 < len(document["items"]) <= overview.MAX_ITEMS
    assert failed and failed[0]["error"]["message"]


def test_what_happened_to_steps_is_in_order(engine: Engine) -> None:
    """A timeline is drawn from these: each claim and its end."""
    document, _ = _overview(engine, engine.run(_grouped(1))["id"])
    kinds = [kind for _, index, _, kind, _ in document["changes"] if index == 0]
    assert kinds == ["step.claimed", "step.succeeded"]


def test_retries_and_forks_know_each_other(engine: Engine) -> None:
    """A task names what continues it, and which of its steps were kept."""
    task = engine.run(graph(step("a", "echo", given={"value": 1}), step("b", "fail", ["a"])))
    retried = engine.operator.retry(task["id"]).task_id
    forked = engine.operator.fork(task["id"], "b").task_id
    document, _ = _overview(engine, task["id"])
    found = {(each["relation"], each["id"]) for each in document["successors"]}
    assert found == {("retry", retried), ("fork", forked)}
    after, _ = _overview(engine, retried)
    assert [each["is_kept"] for each in after["steps"]] == [True, False]


def test_there_is_no_such_task(engine: Engine) -> None:
    """An unknown id is an error with its name."""
    with pytest.raises(NotFoundError, match="there is no task nope"):
        _overview(engine, "nope")


def test_the_version_changes_with_the_task(engine: Engine) -> None:
    """A page is rendered again only when this value is another."""
    task = engine.run(_grouped(1))
    with engine.database.connect("reader") as connection:
        before = overview.version(connection, task["id"])
        assert before == overview.version(connection, task["id"])
        assert overview.version(connection, "nope") is None
    engine.operator.fork(task["id"], "a")
    with engine.database.connect("reader") as connection:
        assert overview.version(connection, task["id"]) != before


def test_reads_of_the_other_pages(engine: Engine) -> None:
    """Each works on both databases, also with every filter."""
    task = engine.run(_grouped(1))
    now = engine.database.clock.now()
    with engine.database.connect("reader") as connection, connection.snapshot():
        newest = recent_events.recent_events(connection, limit=3)
        assert newest[0]["type"] == "task.succeeded"
        cursor = (newest[-1]["xid"], newest[-1]["id"])
        older = recent_events.recent_events(
            connection, limit=2, type_prefix="step", task_id=task["id"], before=cursor
        )
        assert [row["type"].split(".")[0] for row in older] == ["step", "step"]
        assert spend.by_day(connection, "2000-01-01") == []
        assert spend.by_workflow_and_model(connection, now - SECOND) == ([], False)
        assert spend.paused_by_budget(connection, 5) == []
        (listed,) = workflow_list.latest_page(connection, limit=5)
        assert listed["name"] == task["workflow"]
        assert workflow_list.latest_page(connection, limit=5, after=task["workflow"]) == []
        assert health.worker_rows(connection, 5)
        assert health.database_bytes(connection) > 0
        assert health.events_behind(connection, 0, 10) == 10
        assert overview.latest_events(connection, task["id"], 1)[0]["type"] == "task.succeeded"
