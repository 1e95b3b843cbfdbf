"""A form that is sent twice, as by a double click or by a reload, acts once."""

import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx

from agent.store.db.database import Database
from tests.support.browser import sign_in
from tests.support.recorded_triggers import record_workflow
from tests.support.sample_workflows import SIGNALLED
from tests.support.server import Running

GREET = """\
name: greet
inputs: {to: {type: string, default: world}}
steps: {say: {shell: {argv: [echo, "{{ inputs.to }}"], effect: none}}}
"""
DAILY = "name: daily\non: {schedule: {id: plan, every: 10d}}\nsteps: {rest: {wait: 1ms}}\n"


def _hidden(visitor: httpx.Client, path: str) -> dict[str, str]:
    """Return the hidden fields that a page gives its forms."""
    text = visitor.get(path).text
    found = {
        name: re.search(rf'name="{name}" value="([^"]+)"', text) for name in ("csrf", "form_key")
    }
    return {name: match[1] for name, match in found.items() if match is not None}


def _both(send: Callable[[], httpx.Response]) -> list[str]:
    """Send a form twice at once; return where each leads to."""
    with ThreadPoolExecutor(2) as pool:
        answers = [sent.result() for sent in [pool.submit(send), pool.submit(send)]]
    assert [answer.status_code for answer in answers] == [303, 303]
    return [answer.headers["location"] for answer in answers]


def _count(client: httpx.Client, workflow: str) -> int:
    return len(client.get("/api/v1/tasks", params={"workflow": workflow}).json()["tasks"])


def test_a_form_is_one_submission(running: Running, visitor: httpx.Client) -> None:
    """Run, fork, signal, run now and skip: two at once are one, and the second leads where the first does."""
    for text in (GREET, SIGNALLED):
        running.add_workflow(text)
    record_workflow(running.database, DAILY)
    with running.client() as client:
        hidden = _hidden(visitor, "/workflows/greet")
        run = lambda: visitor.post("/workflows/greet/run", data=hidden | {"value:to": "you"})  # noqa: E731
        first, second = _both(run)
        assert first == second
        task_id = first.rpartition("/")[2]
        running.wait_for_task(client, task_id, "succeeded")
        fork = f"/tasks/{task_id}/fork"
        chosen = _hidden(visitor, fork) | {"from": "say", "value:to": "all"}
        first, second = _both(lambda: visitor.post(f"{fork}/start", data=chosen))
        assert first == second
        assert _count(client, "greet") == 2
        waiting = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
        spare = _hidden(visitor, "/tasks") | {"name": "spare", "payload": "1"}
        _both(lambda: visitor.post(f"/tasks/{waiting}/signal", data=spare))
        with running.database.connect("reader") as connection:
            kept = connection.query("SELECT name FROM signals WHERE task_id = :task", task=waiting)
        assert len(kept) == 1
        for action in ("run", "skip"):
            once = _hidden(visitor, "/triggers/daily%3Aplan")
            address = f"/triggers/daily:plan/{action}"
            _both(partial(visitor.post, address, data=once))
        firings = client.get("/api/v1/triggers/daily:plan/firings").json()["firings"]
        assert sorted(firing["status"] for firing in firings) == ["skipped", "started"]


def test_other_values_are_another_submission(running: Running, visitor: httpx.Client) -> None:
    """A form that was refused, or that comes again with other values, is not taken for a repetition."""
    running.add_workflow(
        GREET.replace("greet", "correct").replace("string, default: world", "integer, default: 1")
    )
    hidden = _hidden(visitor, "/workflows/correct")
    path = "/workflows/correct/run"
    assert visitor.post(path, data=hidden | {"value:to": "many"}).status_code == 422
    led_to = {
        visitor.post(path, data=hidden | {"value:to": text}).headers["location"]
        for text in ("3", "4", "3")
    }
    assert len(led_to) == 2
    visitor.get("/tasks")  # shows what was started, once
    again = visitor.post(path, data=hidden | {"value:to": "4"}, follow_redirects=True)
    assert "Nothing was done a second time" in again.text


def test_a_repetition_is_known_after_a_restart(sqlite_template: Path, tmp_path: Path) -> None:
    """A browser that sends the form again to the next daemon is led to the same task."""
    shutil.copyfile(sqlite_template, tmp_path / "agent.db")
    (tmp_path / "agent.db").chmod(0o600)
    led_to: list[str] = []
    data: dict[str, str] = {}
    cookie = ""
    for _ in range(2):
        with Running(Database(f"sqlite:///{tmp_path}/agent.db"), tmp_path) as running:
            cookie = cookie or sign_in(running)
            with running.client("") as visitor:
                visitor.cookies.set(running.server.cookie, cookie)
                if not data:
                    running.add_workflow(GREET)
                    data = _hidden(visitor, "/workflows/greet") | {"value:to": "you"}
                sent = visitor.post("/workflows/greet/run", data=data)
                led_to.append(sent.headers["location"])
    assert led_to[0] == led_to[1]
