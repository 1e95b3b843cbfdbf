"""`ctx.snapshot`: a step's code appends to the context of its task, once for each use."""

from typing import Any

from agent.tasks.read_models import work_documents
from tests.support.engine import Engine, graph, step


def snapshots(engine: Engine, task_id: str) -> list[dict[str, Any]]:
    """Return the snapshots of a task."""
    with engine.database.connect("reader") as connection:
        return work_documents.snapshot_page(connection, task_id, after=None, most=100)


def test_a_step_appends_snapshots_once(engine: Engine) -> None:
    """A later attempt runs the same code, and gets the recorded ids; an event announces each."""
    done = engine.run(graph(step("a", "snapshot_twice")))
    assert done["status"] == "succeeded", done
    first, second = snapshots(engine, done["id"])
    assert done["output"]["a"] == [first["id"], second["id"]]
    assert (first["value"], first["label"], first["parent"]) == ({"n": 1}, "plan", None)
    assert (second["value"], second["parent"]) == (2, first["id"])
    assert {first["by"], second["by"]} == {"step:a"} and first["step"] == "a"
    assert engine.types(done["id"]).count("context_snapshot.appended") == 2
    assert done["steps"][0]["attempt"] == 2


def test_a_snapshot_that_is_too_large_fails_the_step(engine: Engine) -> None:
    """The bound is part of the message, and nothing is appended."""
    done = engine.run(graph(step("a", "snapshot_of", given={"characters": 300_000})))
    assert done["status"] == "failed" and "262,144 are allowed" in done["error"]["message"]
    assert snapshots(engine, done["id"]) == []
