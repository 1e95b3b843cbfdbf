"""Workflows, schedules and watchers, spend, health and events: what each shows and does."""

import html
import re

import httpx
import pytest

from agent.core.ids import new_id
from agent.store.db.database import Database
from agent.store.engine import trigger_rows
from tests.support.page_forms import send
from tests.support.recorded_triggers import record_workflow
from tests.support.server import Running, wait_for

TYPED = """\
name: typed
description: Takes typed inputs
inputs:
  tone: {type: string, choices: [kind, strict], default: kind}
  count: {type: integer, description: How often}
  # The name of an input may be a part of another's.
  account: {type: string, default: main}
steps:
  say: {shell: {argv: [echo, "{{ inputs.count }} {{ inputs.tone }}"], effect: none}}
output: "{{ steps.say.output.stdout | trim }}"
"""
NESTED = """\
name: nested
inputs:
  rows: {type: list, default: [1]}
  note: {type: string, default: "two\nlines"}
steps:
  say: {shell: {argv: [echo, "{{ inputs.rows }}"], effect: none}}
"""
UNTYPED = """\
name: untyped
inputs: {anything: {default: 1}}
steps:
  say: {shell: {argv: [echo, "{{ inputs.anything }}"], effect: none}}
"""
DAILY = """\
name: daily-report
on:
  schedule: {id: daily, cron: "0 7 * * *"}
steps:
  report: {shell: {argv: [echo, report], effect: none}}
"""
WATCHING = """\
name: watching
on:
  watch: {id: folder, path: {path: /nowhere/at/all}, every: 1h}
steps:
  look: {shell: {argv: [echo, look], effect: none}}
"""


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    running.add_workflow(TYPED)
    running.add_workflow(NESTED)
    running.add_workflow(UNTYPED)
    record_workflow(running.database, DAILY)
    record_workflow(running.database, WATCHING)


def test_the_list_of_workflows_can_be_searched(visitor: httpx.Client) -> None:
    """The list has descriptions; a search that finds nothing says so."""
    assert "Takes typed inputs" in visitor.get("/workflows").text
    found = visitor.get("/workflows?search=TYPE").text
    assert "/workflows/typed" in found
    assert "/workflows/nested" not in found
    assert "/workflows/typed" in visitor.get("/workflows?search=t%C3%A1kes typed").text, "as listed"
    assert "No workflow has" in visitor.get("/workflows?search=zzz").text
    assert "No workflow has" in visitor.get("/workflows?search=%25").text, "no wildcards"


def test_the_run_form_starts_a_task_with_typed_inputs(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Fields come from the declared inputs, and so do the types of the values."""
    page = visitor.get("/workflows/typed").text
    assert "How often" in page
    assert re.search(r'<option value="strict"', page)
    fields = re.findall(r'name="value:(\w+)"', page)
    assert fields == ["tone", "count", "account"], "the order of the source"
    started = send(visitor, "/workflows/typed/run", **{"value:count": "3", "value:tone": "strict"})
    task = running.wait_for_task(client, started.url.path.rpartition("/")[2], "succeeded")
    assert task["output"] == "3 strict"
    assert task["trigger"]["kind"] == "page"


def test_a_bad_input_is_explained_and_stays_typed(visitor: httpx.Client) -> None:
    """Every problem is named; nothing has to be typed again, and nothing was started."""
    refused = send(
        visitor, "/workflows/typed/run", **{"value:count": "many", "value:tone": "strict"}
    )
    assert refused.status_code == 422
    assert "Nothing was started" in refused.text
    assert "&#39;count&#39; must be" in refused.text
    assert 'value="many"' in refused.text
    assert '<option value="strict" selected' in refused.text
    missing = send(visitor, "/workflows/typed/run")
    assert "&#39;count&#39; is missing" in missing.text


def test_a_list_is_typed_as_json_in_a_field_of_its_own(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Its default is shown as JSON; what is no list is refused; a text keeps its lines."""
    page = visitor.get("/workflows/nested").text
    assert re.search(r'<textarea class="code"[^>]* name="value:rows"[^>]*>\n\[\n  1\n\]<', page)
    fields = {"value:rows": "[1, 2", "value:note": "one\r\ntwo"}
    broken = send(visitor, "/workflows/nested/run", **fields)
    assert broken.status_code == 422
    assert "&#39;rows&#39; must be a list" in broken.text
    started = send(visitor, "/workflows/nested/run", **fields | {"value:rows": "[1, 2]"})
    task = running.wait_for_task(client, started.url.path.rpartition("/")[2], "succeeded")
    assert task["input"] == {"rows": [1, 2], "note": "one\ntwo"}
    fork = visitor.get(f"/tasks/{task['id']}/fork").text
    assert ">\none\ntwo</textarea>" in fork, "a field of one line would join them"


def test_inputs_without_fields_are_typed_as_json(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """An input without a type has no field of its own; broken JSON is explained."""
    broken = send(visitor, "/workflows/untyped/run", inputs="{anything: [1]}")
    assert broken.status_code == 422
    assert "is not JSON" in broken.text
    started = send(visitor, "/workflows/untyped/run", inputs='{"anything": [1, 2]}')
    task = running.wait_for_task(client, started.url.path.rpartition("/")[2], "succeeded")
    assert task["input"] == {"anything": [1, 2]}


def test_versions_and_their_differences(running: Running, visitor: httpx.Client) -> None:
    """The lines that changed are marked as old and new."""
    running.add_workflow(TYPED.replace("Takes typed inputs", "Takes inputs of types"))
    page = visitor.get("/workflows/typed?version=2&against=1").text
    assert '<span class="l old">description: Takes typed inputs' in page
    assert '<span class="l new">description: Takes inputs of types' in page
    with running.database.connect("writer") as connection, connection.transaction():
        connection.execute(
            "UPDATE workflows SET code = '{\"echo\": \"a\"}' WHERE name = 'typed' AND version = 2"
        )
    page = visitor.get("/workflows/typed?version=2&against=1").text
    assert "The code of step <code>echo</code> differs." in page
    assert "earlier version" in visitor.get("/workflows/typed?version=1").text
    assert visitor.get("/workflows/typed?version=9").status_code == 404


def test_the_source_marks_what_starts_the_workflow(visitor: httpx.Client) -> None:
    """The lines of `on:` stand out, and the schedule is listed."""
    page = visitor.get("/workflows/daily-report").text
    assert '<span class="l mark"><span class="y-key">on</span>:' in page
    assert "/triggers/daily-report%3Adaily" in page


def test_a_broken_file_is_shown_with_its_wrong_line(
    running: Running, visitor: httpx.Client
) -> None:
    """The problem, its line and the file; mended, it disappears."""
    directory = running.settings.workflow_directory
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "broken.yaml"
    path.write_text("name: broken\nsteps:\n  a: {shel: {argv: [x]}}\n", encoding="utf-8")
    try:
        page = visitor.get("/workflows").text
        assert "broken.yaml cannot be used" in page
        assert "Line 3: <code>steps.a.shel</code>: there is no kind" in page
        assert "; did you mean" in page
        assert 'class="l bad"' in page
        health = visitor.get("/health").text
        assert "broken.yaml: line 3: there is no kind" in health
    finally:
        path.unlink()


def test_a_workflow_that_would_fail_says_so(running: Running, visitor: httpx.Client) -> None:
    """What the terminal remarks about a file is on the pages too, before anything runs."""
    path = running.settings.workflow_directory / "lonely.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("name: lonely\nsteps: {call: {workflow: absent}}\n")
    running.add_workflow(path.read_text())
    try:
        for address in ("/workflows", "/workflows/lonely"):
            page = html.unescape(visitor.get(address).text)
            assert "step call: no workflow file is called 'absent'" in page, address
        assert "would fail" in page
    finally:
        path.unlink()
    assert "no workflow file is called" not in visitor.get("/workflows/lonely?again=1").text


def test_a_schedule_can_be_run_paused_and_resumed(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Run now starts a task; a pause shows its reason and both ways to end it."""
    path = "/triggers/daily-report%3Adaily"
    assert "daily" in visitor.get("/triggers").text
    ran = send(visitor, f"{path}/run")
    assert ran.status_code == 200
    assert "started" in ran.text
    assert "manual/" not in ran.text
    assert re.search(r'Started as <a href="/tasks/[0-9a-f-]{36}"><code>\w{8}</code></a>', ran.text)
    assert 'class="fate skipped"' in send(visitor, f"{path}/skip").text
    wrong = send(visitor, f"{path}/pause", until="whenever")
    assert wrong.status_code == 422
    assert "neither a duration" in wrong.text
    paused = send(visitor, f"{path}/pause", until="2h", reason="holidays").text
    assert "Paused: holidays" in paused
    assert "Resume and catch up" in paused
    assert "Paused: holidays" not in send(visitor, f"{path}/resume").text


def test_a_definition_is_in_words(visitor: httpx.Client) -> None:
    """What a trigger's definition leaves empty is left out; durations have units; its tasks are a link away."""
    page = visitor.get("/triggers/daily-report%3Adaily").text
    facts = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]*)</dd>", page))
    assert facts["Cron"] == "0 7 * * *"
    assert re.fullmatch(r"[\d.]+\s(s|min)", facts["Stagger"])
    assert "Inputs" not in facts and "Id" not in facts
    assert 'href="/tasks?trigger=daily-report%3Adaily"' in page
    watcher = visitor.get("/triggers/watching%3Afolder").text
    assert "<dt>Every</dt><dd>1\N{NO-BREAK SPACE}h</dd>" in watcher


def test_a_backfill_is_shown_before_it_runs(visitor: httpx.Client) -> None:
    """A dry run lists the instants; a bad time is explained."""
    path = "/triggers/daily-report%3Adaily"
    shown = visitor.get(f"{path}?from=3d")
    would_run = shown.text.partition('<ul class="instants small">')[2].partition("</ul>")[0]
    assert would_run.count("<li><time") == 3
    assert "Run them" in shown.text
    assert "neither a duration" in visitor.get(f"{path}?from=soon").text
    for wrong in ("x", "1,5", "1.000.000"):
        assert "from 1 to 10,000" in visitor.get(f"{path}?from=3d&most={wrong}").text
    assert "from 1 to 10,000" not in visitor.get(f"{path}?from=3d&most=1.000").text
    queued = send(visitor, f"{path}/backfill", **{"from": "3d", "to": "", "most": "1"})
    assert queued.status_code == 200


def test_a_watcher_can_be_checked_and_reset(visitor: httpx.Client) -> None:
    """A check that fails says why; a reset is confirmed."""
    path = "/triggers/watching%3Afolder"
    assert "Watcher of path" in visitor.get(path).text
    checked = send(visitor, f"{path}/check")
    assert checked.status_code in (200, 409)
    assert send(visitor, f"{path}/reset").status_code == 200
    assert visitor.get("/triggers/no%3Asuch").status_code == 404


def test_a_watcher_whose_polls_fail_is_not_called_active(
    running: Running, visitor: httpx.Client
) -> None:
    """The list and its own page say so where its status stands."""
    path = "/triggers/watching%3Afolder"
    assert '<span class="state active">' in visitor.get(path).text
    with running.database.connect("writer") as tx, tx.transaction():
        trigger_rows.update(tx, [("watching:folder", {"alert": "silent"})])
    silent = visitor.get(path).text.partition('id="silent"')[2].partition("</section>")[0]
    assert "It has found no items yet." in silent, "none has come, and so no time is named"
    for alert, state in (("failed", "broken"), (None, "active")):
        with running.database.connect("writer") as tx, tx.transaction():
            trigger_rows.update(tx, [("watching:folder", {"alert": alert})])
        for page in (path, "/triggers?show=watchers"):
            assert f'<span class="state {state}">' in visitor.get(page).text


def test_filters_of_triggers(visitor: httpx.Client) -> None:
    """Schedules and watchers can be shown apart."""
    watchers = visitor.get("/triggers?show=watchers").text
    assert "/triggers/watching%3Afolder" in watchers
    assert "/triggers/daily-report%3Adaily" not in watchers
    assert "No schedule or watcher matches" in visitor.get("/triggers?show=removed").text


def test_spend_by_day_workflow_and_model(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """What calls of models used is added up; without any the page says what would bring some."""
    assert "No model calls in this period" in visitor.get("/spend").text
    created = client.post("/api/v1/workflows/quick/tasks").json()["id"]
    running.wait_for_task(client, created, "succeeded")
    _record_call(running.database, created)
    page = visitor.get("/spend?days=7").text
    assert "$1.25" in page
    assert "brain-1" in page
    assert re.search(r'href="/workflows/quick">quick', page)
    assert page.count("<rect x=") >= 14, "a column a day, twice"


def _record_call(database: Database, task_id: str) -> None:
    """Record a call of a model that cost something."""
    now = database.clock.now()
    with database.connect("writer") as tx, tx.transaction():
        tx.execute(
            "INSERT INTO tool_calls (id, task_id, step_id, number, attempt, action,"
            " idempotency_key, remote_key, request_hash, on_unknown, send_by, expires_at, model,"
            " tokens_in, tokens_out, cost_microusd, created_at) VALUES (:id, :task, 's', 1, 1,"
            " 'model', :id, 'r', 'h', 'retry', 1, 1, 'brain-1', 900, 100, 1250000, :now)",
            id=new_id(),
            task=task_id,
            now=now,
        )
        tx.execute(
            "INSERT INTO daily_spend (day, tokens_used, microusd_used, tokens_reserved,"
            " microusd_reserved) VALUES (:day, 1000, 1250000, 0, 0)",
            day=_today(database),
        )


def _today(database: Database) -> str:
    from agent.core.clock import to_iso

    return str(to_iso(database.clock.now()))[:10]


def test_health_names_its_parts(visitor: httpx.Client) -> None:
    """Workers, channels, queue and database, with what to do where nothing is configured."""
    page = visitor.get("/health").text
    for part in ("Workers", "Alive", "Channels", "No channel is turned on", "Queue", "SQLite"):
        assert part in page
    assert "no one is notified" in page.lower()


def test_health_shows_what_is_wrong(running: Running, visitor: httpx.Client) -> None:
    """A problem of the worker is the first thing on the page."""
    running.worker.health.report("artifacts", "the store at s3://x does not respond")
    try:
        page = visitor.get("/health").text
        assert "Needs attention" in page
        assert "s3://x does not respond" in page
    finally:
        running.worker.health.resolve("artifacts")


def test_events_by_type_and_task(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The newest are first; filters are addresses; an unknown task is explained."""
    created = client.post("/api/v1/workflows/quick/tasks").json()["id"]
    running.wait_for_task(client, created, "succeeded")
    page = visitor.get(f"/events?task={created}").text
    types = re.findall(
        r"<span class=\"what\">((?:task|step|tool_call)\.\w+)", page.replace("<wbr>", "")
    )
    assert types[0] == "task.succeeded"
    assert types[-1] == "task.created"
    only = visitor.get(f"/events?task={created[-8:]}&type=task").text
    assert set(re.findall(r"<span class=\"what\">(\w+)\.<wbr>\w+", only)) == {"task"}
    assert "there is no task" in visitor.get("/events?task=ffffffff").text


def test_events_go_on_from_a_cursor(client: httpx.Client, visitor: httpx.Client) -> None:
    """Older pages repeat nothing; a cursor that cannot be read is left out."""
    for _ in range(8):
        client.post("/api/v1/workflows/quick/tasks")
    wait_for(lambda: 'rel="next"' in visitor.get("/events").text)
    first = visitor.get("/events").text
    following = re.search(r'href="(/events\?cursor=[^"]+)" rel="next"', first)
    assert following is not None
    older = visitor.get(following[1]).text
    assert not set(_keys(first)) & set(_keys(older))
    assert visitor.get("/events?cursor=nonsense").status_code == 200


def _keys(page: str) -> list[str]:
    return re.findall(r'id="event-([^"]+)"', page)
