"""Which steps the timeline of a large task shows."""

from typing import Any

from agent.core.clock import SECOND
from agent.server.pages.drawings.timeline import Timeline
from agent.server.pages.tasks.task_drawings import add_durations, task_timeline


def _task(count: int, failed: int) -> dict[str, Any]:
    """Return a task whose steps ran one after another, with one that failed."""
    steps = [
        {"index": index, "name": f"part_{index}", "status": "succeeded"} for index in range(count)
    ]
    steps[failed]["status"] = "failed"
    changes = [
        (f"s{index}", index, 1, kind, index * SECOND + offset)
        for index in range(count)
        for kind, offset in (("step.claimed", 0), ("step.succeeded", SECOND // 2))
    ]
    return _ended(steps, changes)


def _ended(steps: list[dict[str, Any]], changes: list[Any], runs: Any = ()) -> dict[str, Any]:
    return {
        "id": "t",
        "status": "failed",
        "steps": steps,
        "items": [],
        "changes": changes,
        "item_runs": runs,
        "children": [],
        "ended_at": "2026",
    }


def _drawn(task: dict[str, Any]) -> Timeline:
    add_durations(task, 0)
    return task_timeline(task, 0)


def test_a_failed_step_is_among_the_rows_that_are_not_folded() -> None:
    """However late it ran; the rows that are shown stay in the order of their starts."""
    drawn = _drawn(_task(90, failed=77))
    shown = [line.row.name for line in drawn.rows[: drawn.shown]]
    assert shown == [f"part_{index}" for index in range(drawn.shown - 1)] + ["part_77"]
    assert [line.row.name for line in drawn.rows[drawn.shown :]][:2] == ["part_14", "part_15"]


def test_a_small_task_is_drawn_in_the_order_of_its_starts() -> None:
    """Nothing is moved where nothing is folded."""
    names = [line.row.name for line in _drawn(_task(5, failed=2)).rows]
    assert names == [f"part_{index}" for index in range(5)]


def test_a_group_is_drawn_to_the_end_of_its_last_item() -> None:
    """However many items ran one after another: close ones share a bar, and how long they ran stays exact."""
    changes = [
        (f"s{number}", 0, 1, kind, number * SECOND + offset)
        for number in range(700)
        for kind, offset in (
            ("step.claimed", 0),
            ("step.failed" if number == 650 else "step.succeeded", SECOND // 2),
        )
    ]
    steps = [{"index": 0, "name": "lines", "status": "failed"}]
    (row,) = _drawn(_ended(steps, changes)).rows
    assert len(row.bars) <= 63
    assert max(bar.x + bar.width for bar in row.bars) == 100
    assert [bar.status for bar in row.bars].count("failed") == 1
    assert row.row.seconds == 350


def test_runs_of_items_stand_for_the_changes_of_each() -> None:
    """Of a task with thousands of items."""
    steps = [{"index": 0, "name": "lines", "status": "running"}]
    runs = [(0, "succeeded", 900, 0, 9 * SECOND), (0, "failed", 1, SECOND, 10 * SECOND)]
    (row,) = _drawn(_ended(steps, [], runs)).rows
    assert [(bar.status, bar.label) for bar in row.bars] == [
        ("succeeded", "900 together"),
        ("failed", "1 together"),
    ]
    assert row.row.seconds == 10
