"""Large values: stored once by their content, read back as if they were in their rows."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog.testing
from fsspec.core import url_to_fs

from agent.steps.attempt.services import Limits
from agent.store import pruning
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Database
from agent.store.db.json_values import encode
from agent.workflows.graph import Fanout, Step
from tests.support.approvals import question
from tests.support.engine import NOW, Engine, Start, eventually, graph, other

LARGE = "large " * 20_000

_values = ModuleType("large_values_under_test")
sys.modules["large_values_under_test"] = _values


def give(name: str, value: Any, /, **options: Any) -> Step:
    """Return a step whose output is a value."""
    setattr(_values, name, lambda: value)
    config = {"call": f"large_values_under_test:{name}"}
    return other(name, "python", config=config, **options)


def echo(name: str, of: str, **options: Any) -> Step:
    """Return a step whose output is that of another step."""
    setattr(_values, name, lambda value: value)
    config = {"call": f"large_values_under_test:{name}", "with": {"value": of}}
    return other(name, "python", config=config, **options)


def stored(engine: Engine, task_id: str, name: str) -> str:
    """Return the stored output of a step."""
    sql = "SELECT output FROM steps WHERE task_id = :id AND name = :name"
    return str(engine.rows(sql, id=task_id, name=name)[0][0])


def test_a_large_output_is_read_like_any_other(start: Start) -> None:
    """Templates, functions, groups, children, the document and the task's output see the value."""
    engine = start()
    child = graph(give("given", {"text": LARGE}), name="child")
    assert engine.run(child)["status"] == "succeeded"
    task = engine.run(
        graph(
            give("first", {"text": LARGE, "n": 1}),
            echo("second", "{{ steps.first.output.text }}", after=["first"]),
            Step(
                name="third",
                kind="python",
                config={"call": "large_values_under_test:second", "with": {"value": "{{ item }}"}},
                fanout=Fanout(items=[LARGE, "small"]),
                retry=NOW,
            ),
            echo("fourth", "{{ steps.third.output }}", after=["third"]),
            other("fifth", "workflow", config={"name": "child"}),
            output={
                "second": "{{ steps.second.output }}",
                "fourth": "{{ steps.fourth.output }}",
                "fifth": "{{ steps.fifth.output }}",
            },
        )
    )
    assert task["status"] == "succeeded", task["error"]
    assert task["output"] == {
        "second": LARGE,
        "fourth": [LARGE, "small"],
        "fifth": {"given": {"text": LARGE}},
    }
    assert engine.steps(task["id"])["first"]["output"] == {"text": LARGE, "n": 1}
    assert len(stored(engine, task["id"], "first")) < 100
    # By content: the same text, given by several steps, is there once.
    name = json.loads(stored(engine, task["id"], "second"))["$artifact"]
    assert engine.rows("SELECT count(*) FROM artifacts WHERE hash = :h", h=name) == [(1,)]
    ((size, taken),) = engine.rows(
        "SELECT size, length(data) FROM artifacts WHERE hash = :h", h=name
    )
    assert size > 100_000 > taken


def test_a_small_output_stays_in_its_row(start: Start) -> None:
    """Only large outputs become artifacts."""
    engine = start()
    engine.run(graph(give("small", "x" * 60_000)))
    assert engine.rows("SELECT count(*) FROM artifacts") == [(0,)]


def test_data_cannot_name_an_artifact(start: Start) -> None:
    """An output that looks like a reference is returned as the value that it is."""
    engine = start()
    task = engine.run(graph(give("secret", LARGE)))
    reference = json.loads(stored(engine, task["id"], "secret"))
    forged = engine.run(
        graph(
            give("forged", reference),
            echo("seen", "{{ steps.forged.output }}", after=["forged"]),
        )
    )
    assert forged["output"] == {"seen": reference}
    assert engine.steps(forged["id"])["forged"]["output"] == reference


def test_a_retry_keeps_large_outputs(start: Start) -> None:
    """The outputs that a retry takes over are still there, also after a prune."""
    engine = start()
    broken = other("broken", "python", config={"call": "no_such_module:at_all"}, after=["big"])
    old = engine.run(graph(give("big", LARGE), broken))
    assert old["status"] == "failed"
    new = engine.operator.retry(old["id"]).task_id
    engine.wait(new, "failed")
    with engine.database.connect("writer") as connection:
        later = engine.clock.now() + 2 * artifact_rows.GRACE_US
        assert artifact_rows.prune(connection, later) == 0
    assert engine.steps(new)["big"]["output"] == LARGE


def test_large_requests_and_responses_become_artifacts(start: Start) -> None:
    """A long prompt and its long answer leave small rows, and a later attempt reads the answer."""
    engine = start()
    config = {"prompt": LARGE, "model": "echo", "max_tokens": 100_000}
    task = engine.run(graph(other("it", "llm", config=config)))
    assert task["output"] == {"it": f"[echo] {LARGE}"}
    ((request, response),) = engine.rows("SELECT request, response FROM tool_calls")
    assert len(request) < 100 and len(response) < 100
    with engine.database.connect("reader") as connection:
        assert artifact_rows.load(connection, request)["prompt"] == LARGE
        assert artifact_rows.load(connection, response)["text"] == f"[echo] {LARGE}"


def test_a_question_about_a_large_request_shows_how_it_begins(start: Start) -> None:
    """The person sees the beginning of the request, and where the whole of it is."""
    engine = start()
    config = {"call": "tests.support.step_functions:cut_off_at_length", "with": {"text": LARGE}}
    task_id = engine.submit(graph(other("pay", "python", config=config)))
    engine.wait_step(task_id, "pay", "waiting")
    engine.skip(3600)
    asked = question(engine, task_id)
    request = asked["request"]["request"]
    assert request["begins"] == encode({"text": LARGE}, "it")[:2000]
    with engine.database.connect("writer") as connection, connection.transaction():
        content = artifact_rows.get(connection, request["$artifact"])
        assert content is not None and json.loads(content) == {"text": LARGE}
        connection.execute("UPDATE artifacts SET data = :data", data=b"nothing")
    asked = question(engine, task_id)
    assert "is damaged" in asked["request"]["request"]["problem"]


@pytest.mark.parametrize("kind", ["directory", "fsspec"])
def test_artifacts_in_a_directory_or_an_object_store(
    sqlite_database: Database, tmp_path: Path, kind: str
) -> None:
    """The content is written there, and prune removes it there too."""
    url = str(tmp_path / "kept") if kind == "directory" else "memory://artifacts-under-test"

    def files() -> list[str]:
        return [str(found) for found in url_to_fs(url)[0].find(url_to_fs(url)[1])]

    engine = Engine(sqlite_database, limits=Limits(artifacts_url=url))
    try:
        task = engine.run(
            graph(give("big", LARGE), echo("seen", "{{ steps.big.output }}", after=["big"]))
        )
        assert task["output"] == {"seen": LARGE}
        ((encoding, taken),) = engine.rows("SELECT encoding, length(data) FROM artifacts")
        assert encoding == "zlib@" and taken < 500
        assert len(files()) == 1
        with sqlite_database.connect("writer") as connection:
            later = engine.clock.now() + 2 * artifact_rows.GRACE_US
            pruning.prune(connection, later)
            assert artifact_rows.prune(connection, later) == 1
        assert files() == []
    finally:
        engine.stop()
        engine.close()


@pytest.mark.parametrize("is_back", [True, False], ids=["out of reach", "gone"])
def test_no_step_takes_a_reference_for_its_value(
    sqlite_database: Database, tmp_path: Path, *, is_back: bool
) -> None:
    """A step waits for a value that cannot be read now, and fails if the value is gone."""
    kept, away = tmp_path / "kept", tmp_path / "away"
    engine = Engine(sqlite_database, limits=Limits(artifacts_url=str(kept)))
    try:
        with structlog.testing.capture_logs() as entries:
            task_id = engine.submit(
                graph(
                    give("big", LARGE),
                    other("go", "wait", config={"signal": "go"}),
                    echo("seen", "{{ steps.big.output }}", after=["big", "go"]),
                )
            )
            engine.wait_step(task_id, "go", "waiting")
            engine.wait_step(task_id, "big", "succeeded")
            if is_back:
                kept.rename(away)
            else:
                for file in kept.rglob("*"):
                    if file.is_file():
                        file.unlink()
            engine.operator.signal(task_id, "go")
            if is_back:
                eventually(lambda: "attempts.delayed" in [entry["event"] for entry in entries])
                away.rename(kept)
            task = engine.wait(task_id, "succeeded", "failed")
        if is_back:
            assert task["output"] == {"seen": LARGE}
        else:
            assert task["error"]["code"] == "bad_record"
            assert "this artifact is gone" in task["error"]["message"]
    finally:
        engine.stop()
        engine.close()


def test_missing_content_is_shown_as_missing(sqlite_database: Database) -> None:
    """A reference without content is shown as such, and nothing else fails."""
    with sqlite_database.connect("reader") as connection:
        text = json.dumps(artifact_rows.reference("0" * 64), separators=(",", ":"))
        assert artifact_rows.load(connection, text)["problem"] == "this artifact is gone"
