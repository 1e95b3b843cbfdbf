"""Texts that users, models or remotes fill are shown as text on every page, never as markup."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agent.core.ids import new_id
from agent.store.db.database import Database
from tests.support.page_forms import send
from tests.support.recorded_triggers import record_workflow
from tests.support.server import Running, wait_for

HOSTILE = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}\u202e"
ITEM = HOSTILE.replace("{{7*7}}", "")
"""Items in a file are templates by themselves."""
WORKFLOW = f"""\
name: hostile
description: {json.dumps(HOSTILE)}
inputs:
  text: {{type: string, default: {json.dumps(HOSTILE)}, description: {json.dumps(HOSTILE)}}}
on:
  schedule: {{id: often, every: 10d}}
steps:
  say: {{shell: {{argv: [echo, "{{{{ inputs.text }}}}"], effect: none}}}}
  each: {{depends_on: [say], foreach: [{json.dumps(ITEM)}], shell: {{argv: [echo, x], effect: none}}}}
  ask: {{depends_on: [say], approval: {{message: "{{{{ inputs.text }}}}"}}, shell: {{argv: [echo, "{{{{ inputs.text }}}}"]}}}}
  fail:
    depends_on: [say]
    shell: {{argv: [sh, -c, 'echo "$1"; echo "$1" >&2; exit 3', sh, "{{{{ inputs.text }}}}"], effect: none}}
    retry: {{max_attempts: 1}}
fail_fast: false
output: "{{{{ steps.say.output.stdout }}}}"
"""


@pytest.fixture(scope="module")
def task(running: Running) -> Iterator[str]:
    """Return a task that is full of such texts: input, output, error, log, question and calls."""
    record_workflow(running.database, WORKFLOW)
    with running.client() as client:
        task_id = str(client.post("/api/v1/workflows/hostile/tasks").json()["id"])

        def is_settled() -> bool:
            document: dict[str, Any] = client.get(f"/api/v1/tasks/{task_id}").json()
            steps = {step["name"]: step["status"] for step in document["steps"]}
            return bool(steps["fail"] == "failed" and steps["ask"] == "waiting")

        wait_for(is_settled)
        _say_as_model(running.database, task_id)
        yield task_id


def _say_as_model(database: Database, task_id: str) -> None:
    """Record a call of a model whose texts are hostile, and a pause with such a reason."""
    with database.connect("writer") as tx, tx.transaction():
        ((step_id,),) = tx.query(
            "SELECT id FROM steps WHERE task_id = :id AND name = 'say'", id=task_id
        )
        call = new_id()
        response = {
            "text": HOSTILE,
            "tool_uses": [{"name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}],
        }
        tx.execute(
            "INSERT INTO tool_calls (id, task_id, step_id, number, attempt, action, request, response,"
            " idempotency_key, remote_key, request_hash, on_unknown, send_by, expires_at, model,"
            " tokens_in, tokens_out, created_at) VALUES (:id, :task, :step, 7, 1, :action, :request,"
            " :response, :id, 'r', 'h', 'retry', 1, 1, :model, 9, 1, :now)",
            id=call,
            task=task_id,
            step=step_id,
            action=HOSTILE,
            request=json.dumps({"tool": HOSTILE, "arguments": HOSTILE}),
            response=json.dumps(response),
            model=HOSTILE,
            now=database.clock.now(),
        )
        tx.execute(
            "INSERT INTO idempotency_outcomes (idempotency_key, tool_call_id, status)"
            " VALUES (:id, :id, 'succeeded')",
            id=call,
        )


def check(page: httpx.Response, *, is_typed: bool = True) -> str:
    """Check that a page has no markup of such a text; return the page.

    What a person has typed comes back unchanged in its field.
    """
    assert page.status_code < 500
    assert "<img" not in page.text
    assert "<script>" not in page.text
    if not is_typed:
        assert "\u202e" not in page.text, "characters that reorder the text are escaped"
    assert "gt;49" not in page.text, "templates in data are not rendered"
    return page.text


@pytest.mark.parametrize(
    "path",
    [
        "/tasks/{task}",
        "/tasks/{task}/fork",
        "/tasks/{task}/steps/say",
        "/tasks/{task}/steps/each%5B0%5D",
        "/tasks/{task}/steps/ask",
        "/tasks/{task}/steps/fail",
        "/workflows",
        "/workflows/hostile",
        "/triggers",
        "/triggers/hostile%3Aoften",
        "/spend",
        "/events?task={task}",
    ],
)
def test_hostile_texts_are_only_text(visitor: httpx.Client, task: str, path: str) -> None:
    """Names, inputs, outputs, errors, logs, model texts and sources are escaped."""
    text = check(visitor.get(path.format(task=task)), is_typed=False)
    if "triggers" not in path and "/each" not in path and "events" not in path:
        assert "&lt;img src=x" in text, "it is shown, though"


def test_hostile_parameters_are_only_text(visitor: httpx.Client, task: str) -> None:
    """What a link carries is escaped as well."""
    for path in ("/workflows", "/events", "/triggers", "/spend", f"/tasks/{task}/fork"):
        for name in ("search", "task", "type", "show", "cursor", "from", "days", "workflow"):
            check(visitor.get(path, params={name: HOSTILE}))
    check(visitor.get("/triggers/hostile%3Aoften", params={"from": HOSTILE, "most": HOSTILE}))
    check(visitor.get("/workflows/" + "%3Cimg src=x%3E"))


def test_hostile_form_values_are_only_text(visitor: httpx.Client, task: str) -> None:
    """A refused form is shown again with what was typed."""
    for action in ("signal", "fork/start", "pause", "cancel/x"):
        check(
            send(visitor, f"/tasks/{task}/{action}", name=HOSTILE, payload=HOSTILE, reason=HOSTILE)
        )
    check(send(visitor, "/workflows/hostile/run", **{"value:text": HOSTILE, "priority": HOSTILE}))
    check(send(visitor, "/triggers/hostile%3Aoften/pause", until=HOSTILE, reason=HOSTILE))
    check(send(visitor, f"/tasks/{task}/steps/{HOSTILE}/resolve", verdict="done", output=HOSTILE))
