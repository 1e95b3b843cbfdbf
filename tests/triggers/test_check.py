"""`check` polls a watcher and shows what would follow; it records nothing."""

import json
from pathlib import Path

import pytest

from agent.steps.attempt.services import Limits
from agent.store.db.database import Database
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.triggers.check import check_watcher
from agent.triggers.commands.trigger_commands import TriggerCommands
from tests.support.recorded_triggers import StillClock, fates, record_workflow, trigger_row

WORKFLOW = """\
name: inbox
on: {watch: [{id: lines, command: {argv: [cat, FILE]}, every: 5m, most: 1}]}
steps: {rest: {wait: 1s}}
"""


def record(database: Database, tmp_path: Path, *ids: int) -> str:
    """Record a watcher of a file of JSON lines, which has these."""
    path = tmp_path / "lines"
    path.write_text("".join(json.dumps({"key": str(number)}) + "\n" for number in ids))
    (trigger_id,) = record_workflow(database, WORKFLOW.replace("FILE", str(path)))
    return trigger_id


def test_a_check_shows_fates_and_records_nothing(
    still: Database, clock: StillClock, tmp_path: Path
) -> None:
    """First a baseline; after a first poll, what would start now and later."""
    trigger_id = record(still, tmp_path, 1, 2)
    before = trigger_row(still, trigger_id)
    found = check_watcher(still, clock, Limits(), trigger_id)
    assert (found["found"], found["known"], found["is_first"]) == (2, 0, True)
    assert [entry["fate"] for entry in found["would"]] == ["baseline", "baseline"]
    assert trigger_row(still, trigger_id) == before
    Operator(still, clock).fire(TriggerUpdate(trigger_id, before.version, values={"polls": 1}))
    found = check_watcher(still, clock, Limits(), trigger_id)
    assert [(entry["fate"], entry["item"]) for entry in found["would"]] == [
        ("started", {"key": "1"}),
        ("queued", {"key": "2"}),
    ]
    assert found["sample"] == {"key": "2", "item": {"key": "2"}}
    assert fates(still, trigger_id) == {}


def test_a_check_of_a_paused_watcher_shows_what_a_resume_skips(
    still: Database, clock: StillClock, tmp_path: Path
) -> None:
    """What is shown is what happens: the first poll after the pause skips what came meanwhile."""
    trigger_id = record(still, tmp_path, 1)
    version = trigger_row(still, trigger_id).version
    Operator(still, clock).fire(TriggerUpdate(trigger_id, version, values={"polls": 1}))
    commands = TriggerCommands(still, clock)
    commands.pause(trigger_id)
    paused = check_watcher(still, clock, Limits(), trigger_id)
    assert paused["status"] == "paused"
    assert [(entry["fate"], entry["reason"]) for entry in paused["would"]] == [
        ("skipped", "paused")
    ]
    commands.resume(trigger_id)
    resumed = check_watcher(still, clock, Limits(), trigger_id)
    assert (resumed["status"], resumed["would"]) == ("active", paused["would"])
    commands.pause(trigger_id)
    commands.resume(trigger_id, catch_up=True)
    caught_up = check_watcher(still, clock, Limits(), trigger_id)
    assert [entry["fate"] for entry in caught_up["would"]] == ["started"]


def test_a_check_that_finds_nothing_new_still_shows_an_item(
    still: Database, clock: StillClock, tmp_path: Path
) -> None:
    """A source that leaves out what has not changed is asked again without the cursor."""
    script = tmp_path / "new.sh"
    script.write_text(
        """if [ -z "$AGENT_CURSOR" ]; then echo '{"key": "a", "title": "A"}'; fi; echo '{"cursor": 1}'"""
    )
    text = WORKFLOW.replace("[cat, FILE]", f"[sh, {script}]")
    (trigger_id,) = record_workflow(still, text)
    version = trigger_row(still, trigger_id).version
    values = {"polls": 1, "cursor": '{"own": 1}'}
    Operator(still, clock).fire(TriggerUpdate(trigger_id, version, values=values))
    found = check_watcher(still, clock, Limits(), trigger_id)
    assert (found["found"], found["would"]) == (0, [])
    assert found["sample"] == {"key": "a", "item": {"key": "a", "title": "A"}}


def test_a_failed_poll_is_refused_with_its_reason(
    still: Database, clock: StillClock, tmp_path: Path
) -> None:
    """The person sees what went wrong; the watcher's failures do not count it."""
    trigger_id = record(still, tmp_path)
    (tmp_path / "lines").unlink()
    with pytest.raises(
        RefusedError, match=r"the poll failed: the command cat ended with exit code 1"
    ):
        check_watcher(still, clock, Limits(), trigger_id)
    assert trigger_row(still, trigger_id).failures == 0


def test_only_watchers_can_be_checked(still: Database, clock: StillClock) -> None:
    """A schedule has nothing to poll."""
    schedule = (
        "name: report\non: {schedule: {id: daily, cron: 0 9 * * *}}\nsteps: {a: {wait: 1s}}\n"
    )
    record_workflow(still, schedule)
    with pytest.raises(RefusedError, match="it is a schedule"):
        check_watcher(still, clock, Limits(), "report:daily")
    with pytest.raises(NotFoundError, match="there is no trigger"):
        check_watcher(still, clock, Limits(), "report:weekly")
