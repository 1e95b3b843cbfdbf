"""Pruning of firings: only rows go that can no longer keep an instant or an item from a second task."""

from collections.abc import Iterator
from typing import Any

import pytest

from agent.store import firing_pruning, pruning
from agent.store.db.database import Connection, Database
from agent.store.engine.firing_rows import DAY_US
from tests.support.previewed_prune import previewed_prune
from tests.support.rows import insert, insert_task

DAYS_KEPT = 30


@pytest.fixture(autouse=True)
def previewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each prune of these tests with its preview."""
    monkeypatch.setattr(pruning, "prune", previewed_prune)


class _Rows:
    """Triggers and firings whose times are days before now."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        ((self._now,),) = connection.query(f"SELECT {connection.sql.now_us}")

    def at(self, days_ago: float) -> int:
        return int(self._now - days_ago * DAY_US)

    def trigger(self, trigger_id: str, kind: str = "schedule", **given: Any) -> None:
        workflow, _, name = trigger_id.partition(":")
        values = {"status": "active", "spec": "{}", "last_nominal": self.at(0), **given}
        insert(
            self.connection,
            "triggers",
            id=trigger_id,
            workflow=workflow,
            name=name,
            kind=kind,
            **values,
        )

    def firing(
        self,
        trigger_id: str,
        key: str,
        days_ago: float,
        status: str = "skipped",
        nominal: float | None = None,
        **given: Any,
    ) -> None:
        nominal_at = self.at(days_ago if nominal is None else nominal)
        insert(
            self.connection,
            "firings",
            trigger_id=trigger_id,
            key=key,
            status=status,
            recorded_at=self.at(days_ago),
            **{"nominal_at": nominal_at, **given},
        )

    def prune(self, days: float = DAYS_KEPT) -> dict[str, int]:
        return pruning.prune(self.connection, self.at(days))

    def left(self) -> set[str]:
        return {str(row[0]) for row in self.connection.query("SELECT key FROM firings")}

    def triggers(self) -> set[str]:
        return {str(row[0]) for row in self.connection.query("SELECT id FROM triggers")}


@pytest.fixture
def rows(database: Database) -> Iterator[_Rows]:
    """Return a database to fill."""
    with database.connect("writer") as connection:
        yield _Rows(connection)


def test_old_instants_go_with_their_tasks(rows: _Rows) -> None:
    """A firing stays as long as its task, whether that is open or ended later."""
    rows.trigger("w:s")
    insert_task(rows.connection, "ended", ended_at=rows.at(50), trigger_id="w:s")
    insert_task(rows.connection, "lately", ended_at=rows.at(1), trigger_id="w:s")
    insert_task(rows.connection, "open", status="paused", trigger_id="w:s")
    for task in ("ended", "lately", "open"):
        rows.firing("w:s", f"of {task}", 60, "started", task_id=task)
    rows.firing("w:s", "skipped", 60)
    rows.firing("w:s", "by hand", 60, "started", nominal_at=None, task_id="gone")
    rows.firing("w:s", "missed", 60, "missed", until_at=rows.at(40), count=9)
    rows.firing("w:s", "waits", 60, "queued", input="{}", context="{}", run_id="r")
    rows.firing("w:s", "young", 20)
    rows.firing("w:s", "newest", 1)
    removed = rows.prune()
    assert rows.left() == {"of lately", "of open", "waits", "young", "newest"}
    assert removed["firings"] == 4
    assert removed["tasks"] == 1
    assert rows.prune()["firings"] == 0


def test_what_may_still_come_keeps_its_row(rows: _Rows) -> None:
    """Instants that the schedule has not passed stay, however long ago their fate was recorded."""
    rows.trigger("w:s", last_nominal=rows.at(50))
    rows.firing("w:s", "passed", 60)
    rows.firing("w:s", "last", 60, nominal=50)
    rows.firing("w:s", "undecided", 60, nominal=45)
    rows.firing("w:s", "range", 60, "missed", nominal=58, until_at=rows.at(20), count=3)
    rows.firing("w:s", "tomorrow", 60, nominal=-1)
    rows.firing("w:s", "newest", 50, nominal=55)
    rows.prune()
    assert rows.left() == {"last", "undecided", "range", "tomorrow", "newest"}


def test_the_newest_firing_and_those_of_the_last_day_stay(rows: _Rows) -> None:
    """Even if everything is to go: a list shows the last instant, and a clock may be corrected."""
    rows.trigger("w:rare")
    rows.firing("w:rare", "older", 400)
    rows.firing("w:rare", "last year", 370)
    rows.trigger("w:often")
    rows.firing("w:often", "yesterday", 1.5)
    rows.firing("w:often", "today", 0.5)
    rows.firing("w:often", "now", 0)
    rows.prune(days=0)
    assert rows.left() == {"last year", "today", "now"}


def test_items_go_when_polls_have_not_shown_them_for_long(rows: _Rows) -> None:
    """By the last successful poll: a watcher that fails for a year forgets nothing."""
    rows.trigger("w:feed", "watch", last_ok_at=rows.at(0), last_nominal=None)
    rows.trigger("w:failing", "watch", last_ok_at=rows.at(300), last_nominal=None)
    rows.trigger("w:never", "watch", last_ok_at=None, last_nominal=None)
    for trigger in ("w:feed", "w:failing", "w:never"):
        item: dict[str, Any] = {"trigger_id": trigger, "nominal_at": None}
        rows.firing(key=f"{trigger} shown", days_ago=350, seen_at=rows.at(89), **item)
        rows.firing(key=f"{trigger} absent", days_ago=350, seen_at=rows.at(91), **item)
        rows.firing(key=f"{trigger} unseen", days_ago=350, seen_at=None, **item)
        rows.firing(key=f"{trigger} newest", days_ago=1, seen_at=rows.at(1), **item)
    rows.prune()
    gone = {"w:feed absent", "w:feed unseen"}
    assert not gone & rows.left()
    assert len(rows.left()) == 12 - len(gone)


def test_removed_triggers_go_without_firings_and_tasks(rows: _Rows) -> None:
    """One that was removed lately, or whose items are known, stays for its return."""
    rows.trigger("w:long", status="removed", removed_at=rows.at(40), last_nominal=rows.at(40))
    rows.firing("w:long", "newest", 45)
    rows.firing("w:long", "skipped by a person", 45, nominal=38)
    rows.trigger("w:lately", status="removed", removed_at=rows.at(3))
    rows.trigger("w:active")
    known = {"status": "removed", "removed_at": rows.at(400), "last_ok_at": rows.at(400)}
    rows.trigger("w:known", "watch", **known)
    rows.firing("w:known", "item", 450, nominal_at=None, seen_at=rows.at(401))
    rows.trigger("w:task", status="removed", removed_at=rows.at(40))
    insert_task(rows.connection, "open", status="paused", trigger_id="w:task")
    removed = rows.prune()
    assert rows.triggers() == {"w:lately", "w:active", "w:known", "w:task"}
    assert rows.left() == {"item"}
    assert (removed["triggers"], removed["firings"]) == (1, 2)


def test_many_firings_go_in_small_transactions(
    rows: _Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that stay do not keep later ones from being found."""
    monkeypatch.setattr(firing_pruning, "_PAGE", 3)
    rows.trigger("w:s")
    for number in range(10):
        status = "queued" if number in (0, 1, 2, 4) else "skipped"
        rows.firing("w:s", f"{number}", 60, status)
    rows.firing("w:s", "newest", 1)
    steps = list(pruning.prune_in_steps(rows.connection, rows.at(DAYS_KEPT)))
    assert [count for kind, count in steps if kind == "firings"] == [0, 2, 3, 1]
    assert rows.left() == {"0", "1", "2", "4", "newest"}
