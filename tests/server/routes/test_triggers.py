"""Triggers over HTTP: `read` shows them, `operate` controls them."""

import itertools
import json
from pathlib import Path

import httpx
import pytest

from agent.core.logs import audit
from agent.server.schemas.triggers import (
    FiringPage,
    TriggerAnswer,
    TriggerCheck,
    TriggerDocument,
    TriggerList,
)
from agent.triggers import documents
from tests.support.recorded_triggers import record_workflow
from tests.support.server import Running

HOURLY = """\
name: NAME
on: {schedule: {id: hourly, cron: 0 * * * *, timezone: UTC, overlap: allow}}
steps: {rest: {wait: 1ms}}
"""
LINES = """\
name: lines
on: {watch: {id: new, command: {argv: [cat, FILE]}, every: 1h, first: all}}
steps: {rest: {wait: 1ms}}
"""
TRIGGERS = "/api/v1/triggers"
_NUMBERS = itertools.count()


@pytest.fixture
def schedule(running: Running) -> str:
    """Return the address of a schedule of the test's own."""
    name = f"hourly-{next(_NUMBERS)}"
    (trigger_id,) = record_workflow(running.database, HOURLY.replace("NAME", name))
    return f"{TRIGGERS}/{trigger_id}"


def test_documents_equal_the_read_models(
    running: Running, client: httpx.Client, schedule: str
) -> None:
    """Lists and documents validate, and are those of the command line."""
    listed = client.get(TRIGGERS, params={"kind": "schedule", "status": "active"}).json()
    TriggerList.model_validate(listed)
    assert schedule.rpartition("/")[2] in {entry["id"] for entry in listed["triggers"]}
    shown = client.get(schedule).json()
    TriggerDocument.model_validate(shown)
    with running.database.connect("reader") as connection:
        row = documents.find_row(connection, shown["id"])
        now = running.database.clock.now()
        assert shown == documents.trigger_document(connection, row, now)
    only = client.get(TRIGGERS, params={"workflow": shown["workflow"]}).json()
    assert [entry["id"] for entry in only["triggers"]] == [shown["id"]]
    assert client.get(TRIGGERS, params={"status": "odd"}).status_code == 422
    assert client.get(f"{TRIGGERS}/no:such").status_code == 404
    assert client.get(f"{TRIGGERS}/no:such/firings").status_code == 404


def test_a_list_comes_in_pages(running: Running, client: httpx.Client) -> None:
    """Each trigger is on one page."""
    ids = {f"page-{number}:hourly" for number in range(3)}
    for trigger_id in sorted(ids):
        name = trigger_id.partition(":")[0]
        record_workflow(running.database, HOURLY.replace("NAME", name))
    found: list[str] = []
    cursor: str | None = None
    while True:
        query: dict[str, str] = {"limit": "1"}
        if cursor is not None:
            query["cursor"] = cursor
        page = client.get(TRIGGERS, params=query).json()
        found += [entry["id"] for entry in page["triggers"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == sorted(set(found))
    assert ids <= set(found)


def test_a_schedule_is_paused_resumed_and_skipped(client: httpx.Client, schedule: str) -> None:
    """Each answer says whether anything changed, and what."""
    paused = client.post(f"{schedule}/pause", json={"until": "2h", "reason": "holidays"})
    TriggerAnswer.model_validate(paused.json())
    assert paused.json()["message"].startswith("paused until 20")
    shown = client.get(schedule).json()
    assert (shown["status"], shown["pause_reason"]) == ("paused", "holidays")
    assert client.post(f"{schedule}/skip").status_code == 409
    resumed = client.post(f"{schedule}/resume", json={"catch_up": True})
    assert (resumed.status_code, resumed.json()["changed"]) == (200, True)
    assert client.post(f"{schedule}/resume").json()["changed"] is False
    skipped = client.post(f"{schedule}/skip").json()
    firings = client.get(f"{schedule}/firings").json()
    FiringPage.model_validate(firings)
    assert [(each["key"], each["status"]) for each in firings["firings"]] == [
        (skipped["instants"][0], "skipped")
    ]


def test_a_skip_is_repeated_under_its_key(client: httpx.Client, schedule: str) -> None:
    """A response that was lost does not cost a second instant."""
    answers = [
        client.post(f"{schedule}/skip", headers={"Idempotency-Key": "s1"}).json() for _ in range(2)
    ]
    assert [each["changed"] for each in answers] == [True, False]
    assert answers[0]["instants"] == answers[1]["instants"]


def test_a_run_is_repeated_under_its_key(client: httpx.Client, schedule: str) -> None:
    """The same key is the same task; another is another one."""
    first = client.post(f"{schedule}/run", headers={"Idempotency-Key": "k1"}).json()
    again = client.post(f"{schedule}/run", headers={"Idempotency-Key": "k1"}).json()
    other = client.post(f"{schedule}/run").json()
    assert (first["changed"], again["changed"], other["changed"]) == (True, False, True)
    assert again["tasks"] == first["tasks"] != other["tasks"]
    task = client.get(f"/api/v1/tasks/{first['tasks'][0]}").json()
    assert (task["trigger"]["kind"], task["trigger"]["fate"]) == ("schedule", "manual")
    reused = client.post(f"{schedule}x/run", headers={"Idempotency-Key": "k1"})
    assert reused.status_code == 422


def test_a_backfill_queues_the_oldest_first(client: httpx.Client, schedule: str) -> None:
    """A dry run returns the same instants; pages of firings repeat and lose none."""
    span = {"from": "2026-03-01T00:00:00", "to": "2026-03-01T10:00:00", "most": 5}
    dry = client.post(f"{schedule}/backfill", json={**span, "dry_run": True}).json()
    assert (dry["changed"], len(dry["instants"])) == (False, 5)
    done = client.post(f"{schedule}/backfill", json=span).json()
    assert done["instants"] == dry["instants"]
    assert "6 later ones are left out" in done["message"]
    page = client.get(f"{schedule}/firings", params={"limit": 3}).json()
    rest = client.get(f"{schedule}/firings", params={"limit": 3, "cursor": page["next"]}).json()
    keys = [each["key"] for each in page["firings"] + rest["firings"]]
    assert sorted(keys) == dry["instants"]
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("command", "body", "status"),
    [
        ("pause", {"until": "soon"}, 422),
        ("pause", {"until": "2020-01-01"}, 409),
        ("backfill", {}, 422),
        ("backfill", {"from": "1h", "to": "2h"}, 409),
        ("backfill", {"from": "1h", "most": 0}, 422),
        ("reset", None, 409),
        ("check", None, 409),
    ],
)
def test_what_cannot_be_done_is_refused(
    client: httpx.Client, schedule: str, command: str, body: dict[str, object] | None, status: int
) -> None:
    """Times that cannot be read are invalid; what the state forbids is refused."""
    assert client.post(f"{schedule}/{command}", json=body).status_code == status
    assert client.get(f"{schedule}/firings", params={"cursor": "odd"}).status_code == 422


def test_a_watcher_is_checked_and_reset(
    running: Running, client: httpx.Client, tmp_path: Path
) -> None:
    """A check shows what would start and records nothing."""
    path = tmp_path / "lines"
    path.write_text('{"key": "a"}\n')
    (trigger_id,) = record_workflow(running.database, LINES.replace("FILE", str(path)))
    address = f"{TRIGGERS}/{trigger_id}"
    checked = client.post(f"{address}/check").json()
    TriggerCheck.model_validate(checked)
    assert [(each["key"], each["fate"]) for each in checked["would"]] == [("a", "started")]
    assert client.get(f"{address}/firings").json()["firings"] == []
    assert client.post(f"{address}/reset").json()["changed"] is True
    path.unlink()
    failed = client.post(f"{address}/check")
    assert (failed.status_code, "exit code 1" in failed.json()["detail"]) == (409, True)


def test_scopes_and_the_audit_log(
    running: Running,
    client: httpx.Client,
    schedule: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading needs `read`, commands need `operate`; each command leaves its line."""
    monkeypatch.setattr(audit, "_path", tmp_path / audit.NAME)
    with running.client(running.token_with("read")) as reader:
        assert reader.get(schedule).status_code == 200
        assert reader.post(f"{schedule}/run").status_code == 403
    client.post(f"{schedule}/pause")
    lines = (tmp_path / audit.NAME).read_text().splitlines()
    refused, last = map(json.loads, lines)
    assert refused["outcome"].startswith("refused: ")
    assert (last["what"], last["outcome"]) == ("pause trigger", "done")
    assert last["trigger"] == schedule.rpartition("/")[2]
