"""Which steps the timeline of a large task shows."""

from typing import Any

from agent.core.clock import SECOND
from agent.server.pages.tasks.task_drawings import task_timeline


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
    return {"id": "t", "steps": steps, "changes": changes, "children": [], "ended_at": "2026"}


def test_a_failed_step_is_among_the_rows_that_are_not_folded() -> None:
    """However late it ran; the rows that are shown stay in the order of their starts."""
    drawn = task_timeline(_task(90, failed=77), 0)
    shown = [line.row.name for line in drawn.rows[: drawn.shown]]
    assert shown == [f"part_{index}" for index in range(drawn.shown - 1)] + ["part_77"]
    assert [line.row.name for line in drawn.rows[drawn.shown :]][:2] == ["part_14", "part_15"]


def test_a_small_task_is_drawn_in_the_order_of_its_starts() -> None:
    """Nothing is moved where nothing is folded."""
    names = [line.row.name for line in task_timeline(_task(5, failed=2), 0).rows]
    assert names == [f"part_{index}" for index in range(5)]
