"""Pruning of old tasks."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from agent.store import idempotency_keys, prune_run, pruning
from agent.store.artifacts import artifact_rows, job_paths, objects
from agent.store.artifacts.blobs import BlobStores
from agent.store.artifacts.job_paths import JobCall
from agent.store.db.database import Connection, Database
from tests.support.previewed_prune import previewed_prune
from tests.support.rows import insert, insert_task

PATIENCE_SECONDS = 60
BEFORE = 1000
CHILDREN = ("steps", "tool_calls", "idempotency_outcomes", "events", "step_logs", "signals")


@pytest.fixture(autouse=True)
def previewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each prune of these tests with its preview."""
    monkeypatch.setattr(pruning, "prune", previewed_prune)


def _tasks(connection: Connection) -> set[str]:
    return {row[0] for row in connection.query("SELECT id FROM tasks")}


def _counts(connection: Connection) -> dict[str, int]:
    return {
        table: connection.query(f"SELECT count(*) FROM {table}")[0][0]
        for table in ("tasks", *CHILDREN)
    }


def test_prune_removes_whole_tasks_that_ended_long_ago(database: Database) -> None:
    """With all their rows; younger and unfinished tasks stay untouched."""
    with database.connect("writer") as connection:
        insert_task(connection, "old-1", status="succeeded", ended_at=999)
        insert_task(connection, "old-2", status="failed", ended_at=1)
        insert_task(connection, "old-3", status="canceled", ended_at=500)
        insert_task(connection, "young", status="succeeded", ended_at=1000)
        for status in ("pending", "running", "paused"):
            insert_task(connection, status, status=status)
        removed = pruning.prune(connection, BEFORE)
        assert removed == dict.fromkeys(pruning.PRUNED, 0) | {"tasks": 3}
        assert _tasks(connection) == {"young", "pending", "running", "paused"}
        assert _counts(connection) == dict.fromkeys(("tasks", *CHILDREN), 4)
        assert pruning.prune(connection, BEFORE)["tasks"] == 0


@pytest.mark.parametrize("scheme", ["", "memory://"], ids=["directory", "object store"])
def test_prune_removes_the_objects_of_jobs(
    database: Database, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that removed tasks launched; jobs of the same key that a later task launched stay."""
    url = f"{scheme}{tmp_path}/jobs"
    stores = BlobStores(jobs_url=url)
    monkeypatch.setattr(database, "blob_stores", stores)
    old, young = JobCall("k" * 64, 1, "0-1"), JobCall("k" * 64, 2, "0-2")
    alone = JobCall("a" * 64, 1, "0-3")
    for call in (old, young, alone):
        objects.write(f"{job_paths.directory(url, call)}/spec.json", b"{}")
    with database.connect("writer") as connection:
        insert_task(connection, "old", ended_at=1)
        insert_task(connection, "young", ended_at=BEFORE)
        for task, call in (("old", old), ("young", young), ("old", alone)):
            insert(
                connection,
                "tool_calls",
                id=call.call_id,
                task_id=task,
                action="job#1",
                attempt=call.attempt,
                remote_key=call.remote_key,
                number=call.attempt,
            )
        assert pruning.prune(connection, BEFORE)["tasks"] == 1
    assert objects.names_below(job_paths.group(url, old.remote_key)) == ["2-02"]
    assert objects.read(f"{job_paths.directory(url, young)}/spec.json") == b"{}"
    assert objects.names_below(job_paths.group(url, alone.remote_key)) == []
    if not scheme:
        assert objects.names_below(url) == ["k" * 32]


def test_prune_removes_children_with_their_parents(database: Database) -> None:
    """A child stays while its parent does, and goes with it, down to grandchildren."""

    def child(task_id: str, parent: str, **given: Any) -> None:
        insert_task(
            connection, task_id, parent_task_id=parent, parent_step_id=f"{parent}-step", **given
        )

    with database.connect("writer") as connection:
        insert_task(connection, "a")
        child("a-child", "a")
        child("a-grandchild", "a-child")
        insert_task(connection, "b", status="running")
        child("b-child", "b")
        insert_task(connection, "c")
        child("c-child", "c", status="running")
        child("c-grandchild", "c-child")
        insert_task(connection, "d")
        child("d-child", "d", ended_at=5000)
        child("orphan", "gone")
        assert pruning.prune(connection, BEFORE)["tasks"] == 4
        assert _tasks(connection) == {
            "b",
            "b-child",
            "c",
            "c-child",
            "c-grandchild",
            "d",
            "d-child",
        }


@pytest.mark.parametrize("relation", ["origin_id", "retry_of", "forked_from"])
def test_prune_keeps_the_origins_of_running_tasks(database: Database, relation: str) -> None:
    """A running retry still needs the old task; an ended one does not."""
    with database.connect("writer") as connection:
        insert_task(connection, "needed")
        insert_task(connection, "alive", status="paused", **{relation: "needed"})
        insert_task(connection, "not-needed")
        insert_task(connection, "over", ended_at=5000, **{relation: "not-needed"})
        assert pruning.prune(connection, BEFORE)["tasks"] == 1
        assert _tasks(connection) == {"needed", "alive", "over"}


def test_prune_keeps_a_line_of_retries_as_long_as_its_last_task(database: Database) -> None:
    """Each may have begun calls that the others know only through it; then all go at once."""
    with database.connect() as connection:
        with connection.transaction():
            for number, ended_at in enumerate((10, 11, 12, 500)):
                before = f"retry {number - 1}" if number else None
                given = {"retry_of": before, "origin_id": "retry 0", "ended_at": ended_at}
                insert_task(connection, f"retry {number}", status="failed", **given)
            insert_task(connection, "alone", status="failed", ended_at=10)
        assert pruning.prune(connection, 100)["tasks"] == 1
        assert _tasks(connection) == {f"retry {number}" for number in range(4)}
        assert pruning.prune(connection, 1000)["tasks"] == 4


def test_prune_works_in_small_transactions(database: Database) -> None:
    """However much is old, each transaction is short; everything goes in the end."""
    with database.connect("writer") as connection:
        with connection.transaction():
            for number in range(250):
                insert(
                    connection,
                    "tasks",
                    id=f"t{number:03}",
                    status="succeeded",
                    origin_id=f"t{number:03}",
                    ended_at=1,
                    event_seq=4000 if number % 50 == 0 else 1,
                )
        commits: list[int] = []
        commit = connection._commit

        def count() -> None:
            commit()
            commits.append(len(_tasks(connection)))

        connection._commit = count  # type: ignore[method-assign]
        assert pruning.prune(connection, BEFORE)["tasks"] == 250
        left = [250, *commits]
        assert left[-1] == 0
        assert all(before - after <= 100 for before, after in itertools.pairwise(left))


def test_rows_of_no_task_are_removed_in_steps(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and events go in transactions of bounded size too."""
    monkeypatch.setattr(idempotency_keys, "_PAGE", 2)
    monkeypatch.setattr(pruning, "_EVENTS", 2)
    with database.connect("writer") as connection:
        for number in range(5):
            insert(connection, "request_keys", key=f"k{number}", request_hash="h", created_at=1)
            insert(connection, "events", type="worker.started", at=1)
        steps = list(pruning.prune_in_steps(connection, BEFORE))
    assert [count for kind, count in steps if kind == "request_keys"] == [2, 2, 1]
    assert [count for kind, count in steps if kind == "events"] == [2, 2, 1]


def test_families_are_removed_in_small_groups(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction counts the children of its tasks; one large family goes alone, and whole."""
    monkeypatch.setattr(pruning, "_TASKS", 4)
    with database.connect("writer") as connection:
        for root, children in (("a", 2), ("b", 2), ("c", 6), ("d", 0)):
            insert_task(connection, root)
            for number in range(children):
                child = f"{root}-{number}"
                insert_task(connection, child, parent_task_id=root, parent_step_id=f"{root}-step")
        steps = list(pruning.prune_in_steps(connection, BEFORE))
    removed = [count for kind, count in steps if kind == "tasks" and count]
    assert sorted(removed) == [1, 3, 3, 7]


def test_prune_skips_a_locked_task(postgres_database: Database) -> None:
    """A task that is being forked is left for the next prune; nothing waits."""
    with (
        postgres_database.connect("writer") as connection,
        postgres_database.connect("writer") as other,
    ):
        insert_task(connection, "held")
        insert_task(connection, "free")
        with other.transaction():
            other.query(f"SELECT id FROM tasks WHERE id = 'held' {other.sql.lock}")
            # A preview counts it: it reads without locks.
            assert pruning.preview(connection, BEFORE)[0]["tasks"] == 2
            assert sum(count for _, count in pruning.prune_in_steps(connection, BEFORE)) == 1
        assert _tasks(connection) == {"held"}


def test_prune_removes_ended_workers_and_their_events(database: Database) -> None:
    """They are removed by age, with events of no task; a worker that owns a step stays."""
    with database.connect("writer") as connection:
        insert_task(connection, "t", status="running")
        connection.execute("UPDATE steps SET status = 'running', owner = 'owner', claim_turn = 1")
        insert(connection, "workers", id="ended", ended_at=10)
        insert(connection, "workers", id="dead", dead=1, started_at=10)
        insert(connection, "workers", id="owner", dead=1, started_at=10)
        insert(connection, "workers", id="alive", started_at=10)
        insert(connection, "workers", id="recent", ended_at=5000)
        insert(connection, "events", type="worker.started", at=10)
        insert(connection, "events", type="worker.started", at=5000)
        removed = pruning.prune(connection, BEFORE)
        assert removed == dict.fromkeys(pruning.PRUNED, 0) | {"events": 1, "workers": 2}
        left = {row[0] for row in connection.query("SELECT id FROM workers")}
        assert left == {"owner", "alive", "recent"}


def test_a_prune_counts_what_it_keeps(database: Database) -> None:
    """Origins of other tasks, and large values within their day of grace."""
    with database.connect("writer") as connection:
        insert_task(connection, "old", status="failed", ended_at=1)
        insert_task(connection, "again", status="running", retry_of="old", origin_id="old")
        unused = artifact_rows.pack(b"a large value of a task that is gone")
        with connection.transaction():
            artifact_rows.put(connection, unused, database.clock.now())
        assert pruning.prune(connection, BEFORE)["artifacts"] == 0
        assert pruning.retained(connection, BEFORE) == pruning.Retained(1, 1, unused.size)
        connection.execute("UPDATE artifacts SET touched_at = 1")
        assert pruning.prune(connection, BEFORE)["artifacts"] == 1
        assert pruning.retained(connection, BEFORE) == pruning.Retained(1, 0, 0)


def test_a_preview_counts_what_goes_with_tasks(database: Database) -> None:
    """Their firings, triggers, memories and large values, which stay as long as they do."""
    with database.connect("writer") as connection:
        with connection.transaction():
            name = artifact_rows.put(connection, b"a large value of an old task", 1)
        reference = f'{{"$artifact": "{name}"}}'
        insert(
            connection,
            "triggers",
            id="w:t",
            workflow="w",
            name="t",
            kind="schedule",
            status="removed",
            removed_at=10,
            spec="{}",
        )
        insert_task(connection, "old", output=reference, trigger_id="w:t")
        insert_task(connection, "young", ended_at=BEFORE)
        for task in ("old", "young"):
            insert(connection, "memories", scope="s", text=task, task_id=task, forgotten_at=10)
        firing = {"trigger_id": "w:t", "status": "started", "nominal_at": 1, "recorded_at": 1}
        insert(connection, "firings", key="one", task_id="old", **firing)
        before = _tasks(connection)
        counts, kept = pruning.preview(connection, BEFORE)
        ones = dict.fromkeys(("tasks", "firings", "triggers", "memories", "artifacts"), 1)
        assert counts == dict.fromkeys(pruning.PRUNED, 0) | ones
        assert (kept.tasks, kept.artifacts) == (0, 0)
        assert _tasks(connection) == before, "nothing was removed"
        assert pruning.prune(connection, BEFORE) == counts


def test_a_prune_with_a_bound_is_continued(database: Database) -> None:
    """It stops when its time is over, says so, and the next one removes the rest."""
    with database.connect("writer") as connection, connection.transaction():
        for number in range(250):
            insert_task(connection, f"t{number:03}")
    first = prune_run.run(database, BEFORE, most_seconds=0.0)
    assert not first.is_complete and first.kept is None
    assert 0 < first.counts["tasks"] < 250
    rest = prune_run.run(database, BEFORE, most_seconds=60.0)
    assert rest.is_complete and first.counts["tasks"] + rest.counts["tasks"] == 250


def test_prune_removes_versions_without_a_task(database: Database) -> None:
    """Those that a newer one replaced long ago; not the newest, and none that a task or a trigger has."""
    with database.connect("writer") as connection:
        for version, created_at in enumerate((1, 2, 3, 4, 5, 6, 7, BEFORE), start=1):
            insert(connection, "workflows", name="w", version=version, created_at=created_at)
        insert(connection, "workflows", name="alone", version=1, created_at=1, removed_at=2)
        insert_task(connection, "old", workflow_name="w", workflow_version=2)
        insert_task(connection, "young", workflow_name="w", workflow_version=3, ended_at=BEFORE)
        insert(connection, "triggers", id="w:t", workflow="w", workflow_version=4, status="active")
        insert(
            connection, "firings", trigger_id="w:t", key="k", status="queued", workflow_version=5
        )
        assert pruning.prune(connection, BEFORE)["versions"] == 3
        left = connection.query("SELECT name, version FROM workflows ORDER BY name, version")
        # The last but one was replaced at the instant itself.
        assert left == [("alone", 1), ("w", 3), ("w", 4), ("w", 5), ("w", 7), ("w", 8)]
