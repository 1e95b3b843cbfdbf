"""What the page of a task says: who started it, what it continues, its budget, output and conversation."""

import json
import re

import httpx
import pytest

from tests.support.page_forms import send
from tests.support.server import Running, wait_for

NOTE = "name: quick-note\nsteps: {say: {shell: {argv: [echo, hello], effect: none}}}\n"
LATER = "name: much-later\nsteps: {rest: {wait: 6h}}\n"
ASKING = """\
name: asking
budget: {tokens: 10, on_exhausted: pause}
steps:
  think: {llm: {model: echo, prompt: "Summarize this letter."}}
  rest: {depends_on: [think], wait: 6h}
"""


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    for text in (NOTE, LATER, ASKING):
        running.add_workflow(text)


def start(client: httpx.Client, workflow: str) -> str:
    """Start a task."""
    answer = client.post(f"/api/v1/workflows/{workflow}/tasks", json={"input": {}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.parametrize(
    ("trigger", "text", "listed"),
    [
        ({"kind": "manual"}, "in the terminal", ""),
        ({"kind": "api", "by": "owner"}, "by owner over the API", "API"),
        ({"kind": "page", "by": "phone"}, "by phone on the dashboard", "dashboard"),
        ({"kind": "webhook", "id": "7"}, "by a webhook", "webhook"),
    ],
)
def test_what_started_a_task_is_in_words(
    running: Running,
    client: httpx.Client,
    visitor: httpx.Client,
    trigger: dict[str, str],
    text: str,
    listed: str,
) -> None:
    """The kind of a trigger is a word of the engine; pages say where a task came from."""
    task_id = start(client, "quick-note")
    running.wait_for_task(client, task_id, "succeeded")
    with running.database.connect("writer") as tx, tx.transaction():
        tx.execute(
            'UPDATE tasks SET "trigger" = :text WHERE id = :id',
            text=json.dumps(trigger),
            id=task_id,
        )
    page = re.sub(r"<[^>]+>", "", visitor.get(f"/tasks/{task_id}").text)
    assert re.search(rf"Started \S+ \S+ \S+\s+{text} ·", page)
    row = visitor.get("/tasks").text.partition(f'id="task-{task_id}"')[2].partition("</li>")[0]
    times = re.sub(r"<[^>]+>", "", row.partition('class="soft times">')[2]).split(" · ")
    assert [each.strip() for each in times[2:]] == ([listed] if listed else [])


def test_a_budget_is_offered_where_models_are_called(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """A task without models has nothing to limit; of one that its budget paused the card has the form."""
    without, paused = start(client, "much-later"), start(client, "asking")
    wait_for(lambda: client.get(f"/api/v1/tasks/{without}").json()["activity"] == "waiting")
    running.wait_for_task(client, paused, "paused")
    assert 'id="act-budget"' not in visitor.get(f"/tasks/{without}").text
    page = visitor.get(f"/tasks/{paused}").text
    assert "its budget is used up" in page and page.count('name="tokens"') == 1
    assert 'id="act-budget"' not in page
    back = f"/tasks/{paused}"
    assert send(visitor, f"{back}/budget", tokens="100000", back=back).status_code == 200
    running.wait_for_task(client, paused, "running")
    assert 'id="act-budget"' in visitor.get(f"/tasks/{paused}").text
    client.post(f"/api/v1/tasks/{paused}/cancel")


def test_an_output_of_nothing_is_not_too_large(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Only an output that is put together from many items is left to the terminal."""
    running.add_workflow('name: silent\nsteps: {rest: {wait: 1ms}}\noutput: "{{ none }}"\n')
    task_id = start(client, "silent")
    assert running.wait_for_task(client, task_id, "succeeded")["output"] is None
    page = visitor.get(f"/tasks/{task_id}").text
    assert "Too large" not in page and "Output</h2>" not in page
    running.add_workflow(
        f"name: many\nsteps: {{each: {{foreach: {list(range(201))}, wait: 1ms}}}}\n"
    )
    large = start(client, "many")
    running.wait_for_task(client, large, "succeeded")
    assert "Too large for a page" in visitor.get(f"/tasks/{large}").text


def test_a_retry_and_a_fork_name_what_they_continue(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """They carry the trigger of the first task, and were not started by it."""
    first = start(client, "quick-note")
    running.wait_for_task(client, first, "succeeded")
    forked = client.post(f"/api/v1/tasks/{first}/fork", json={"from_step": "say"}).json()["task_id"]
    page = re.sub(r"<[^>]+>", "", visitor.get(f"/tasks/{forked}").text)
    assert re.search(rf"as a fork of\s+{first[-8:]} ·", page)
    assert re.search(rf"Fork of\s*{first[-8:]}", page)


def test_the_conversation_of_an_agent_comes_first(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Before the attempts with their configuration; of a failed step the failed attempt is first."""
    running.add_workflow('name: thinking\nsteps: {think: {llm: {model: echo, prompt: "Hello."}}}\n')
    task_id = start(client, "thinking")
    running.wait_for_task(client, task_id, "succeeded")
    page = visitor.get(f"/tasks/{task_id}/steps/think").text
    assert page.index("Conversation</h2>") < page.index("Attempt</h2>")
    with running.database.connect("writer") as tx, tx.transaction():
        tx.execute("UPDATE steps SET status = 'failed' WHERE task_id = :id", id=task_id)
    page = visitor.get(f"/tasks/{task_id}/steps/think?again=1").text
    assert page.index("Conversation</h2>") > page.index("Attempt</h2>")
