"""The page of a task: what it shows first, in which order, and what its buttons do."""

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.browser import sign_in
from tests.support.page_forms import send
from tests.support.sample_workflows import FAILING, GATED
from tests.support.server import Running, wait_for

SHAPES = """\
name: shapes
steps:
  fetch: {shell: {argv: [echo, hello], effect: none}}
  lines: {depends_on: [fetch], foreach: [1, 2, 3], shell: {argv: [echo, "{{ item }}"], effect: none}}
  skipped: {depends_on: [fetch], if: "false", shell: {argv: [echo, x], effect: none}}
  read:
    depends_on: [fetch]
    shell: {argv: [sh, -c, "echo connecting; echo broken >&2; exit 3"], effect: none}
    retry: {max_attempts: 2, delay: 0s, jitter: false}
  book: {depends_on: [lines, read], shell: {argv: [echo, booked]}}
"""
PAYING = """\
name: paying
inputs:
  amount: {type: integer, default: 5, description: How much}
steps:
  pay: {shell: {argv: [echo, "{{ inputs.amount }}"]}}
  tell: {depends_on: [pay], shell: {argv: [echo, told], effect: none}}
output: "{{ steps.pay.output.stdout | trim }}"
"""
TWO_STEPS = """\
name: two-steps
steps:
  first: {shell: {argv: [echo, one], effect: none}}
  second: {depends_on: [first], shell: {argv: ["false"], effect: none}, retry: {max_attempts: 1}}
"""
LATER = "name: later\nsteps: {rest: {wait: 6h}}\n"
PARENT = "name: parent\nsteps: {child: {workflow: later}}\n"


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    for text in (SHAPES, GATED, PAYING, LATER, PARENT):
        running.add_workflow(text)


@pytest.fixture(scope="module")
def failed(running: Running) -> Iterator[str]:
    """Return a task with every kind of end."""
    with running.client() as client:
        task_id = start(client, "shapes")
        running.wait_for_task(client, task_id, "failed")
        yield task_id


def start(client: httpx.Client, workflow: str, **values: object) -> str:
    """Start a task."""
    answer = client.post(f"/api/v1/workflows/{workflow}/tasks", json={"input": values})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def waits(client: httpx.Client, task_id: str) -> None:
    """Wait until a task waits."""
    wait_for(lambda: client.get(f"/api/v1/tasks/{task_id}").json()["activity"] == "waiting")


def test_the_failed_step_comes_first_with_its_error_and_the_last_log(
    visitor: httpx.Client, failed: str
) -> None:
    """Status, failed step, its log, then steps, graph, input and what can be done."""
    text = visitor.get(f"/tasks/{failed}").text
    parts = ["Failed", 'id="failed"', "exit code 3", "connecting", "Steps</h2>", "Graph</h2>"]
    parts += ["Timeline</h2>", "Events</h2>", "What you can do</h2>"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "2 attempts" in text


def test_the_graph_shows_each_step_and_how_it_ended(visitor: httpx.Client, failed: str) -> None:
    """A group has its count, a skipped step its own look, and boxes lead to their steps."""
    svg = re.search(
        r'<svg width="[\d.]+".*?</svg>', visitor.get(f"/tasks/{failed}").text, re.DOTALL
    )
    assert svg is not None
    assert svg[0].count('class="box ') == 5
    for status in ("succeeded", "failed", "skipped"):
        assert f'class="box {status}"' in svg[0]
    assert "×3" in svg[0]
    assert f'href="/tasks/{failed}/steps/read"' in svg[0]


def test_the_timeline_has_a_bar_for_each_attempt(visitor: httpx.Client, failed: str) -> None:
    """Two attempts of one step are two bars in its row."""
    text = visitor.get(f"/tasks/{failed}").text
    row = text[text.index('class="timeline"') :]
    row = row[row.index(">read</a>") :]
    row = row[: row.index("</svg>")]
    assert row.count('class="bar-run failed"') == 2


def test_a_step_took_the_same_time_wherever_it_stands(visitor: httpx.Client, failed: str) -> None:
    """Both attempts of a step, and all items of a group: in the list, in the timeline, on its page."""
    text = visitor.get(f"/tasks/{failed}").text
    for name in ("read", "lines"):
        (listed,) = re.findall(rf'id="step-{name}".*?step-took number">([^<]+)<', text, re.DOTALL)
        (drawn,) = re.findall(
            rf'class="t-name" [^>]*>{name}<.*?t-took number">([^<]+)<', text, re.DOTALL
        )
        own = visitor.get(f"/tasks/{failed}/steps/{name}").text
        (took,) = re.findall(r"· took ([^<·]+?)(?: ·|<)", own)
        assert listed == drawn == took


def test_an_address_may_have_the_short_id_that_lists_show(
    client: httpx.Client, visitor: httpx.Client, failed: str
) -> None:
    """It leads to the whole address, with its query; one that fits no task or several says so."""
    for path in ("", "/steps/read", "/steps/read/log?attempt=1"):
        page = visitor.get(f"/tasks/{failed[-8:]}{path}", follow_redirects=True)
        assert page.status_code == 200
        assert str(page.url).endswith(f"/tasks/{failed}{path}")
    assert visitor.get("/tasks/00000000").status_code == 404
    start(client, "later")
    assert "could be any of" in visitor.get(f"/tasks/{failed[:3]}").text


def test_a_question_is_answered_on_the_page_of_its_task(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The card with Approve stands before the steps."""
    task_id = start(client, "gated")
    waits(client, task_id)
    text = visitor.get(f"/tasks/{task_id}").text
    assert text.index("Approve") < text.index("Steps</h2>")
    question = client.get(f"/api/v1/approvals?task={task_id}").json()["approvals"][0]["id"]
    page = send(
        visitor, f"/questions/{question}/answer", decision="approve", back=f"/tasks/{task_id}"
    )
    assert page.url.path == f"/tasks/{task_id}"
    running.wait_for_task(client, task_id, "succeeded")


def test_a_signal_is_sent_with_a_value(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """What the step waits for is named; the value is JSON."""
    task_id = start(client, "signalled")
    waits(client, task_id)
    assert "waits for the signal <code>go</code>" in visitor.get(f"/tasks/{task_id}").text
    refused = send(visitor, f"/tasks/{task_id}/signal", name="go", payload="yes please")
    assert refused.status_code == 422
    assert "is not JSON" in refused.text
    assert "yes please" in refused.text, "what was typed is still there"
    send(visitor, f"/tasks/{task_id}/signal", name="go", payload='{"n": 5}')
    task = running.wait_for_task(client, task_id, "succeeded")
    assert task["output"] == {"n": 5}


def test_pause_resume_and_cancel(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Each button is there only while it would change something."""
    task_id = start(client, "signalled")
    waits(client, task_id)
    assert f"/tasks/{task_id}/resume" not in visitor.get(f"/tasks/{task_id}").text
    paused = send(visitor, f"/tasks/{task_id}/pause").text
    assert "Paused" in paused
    assert f'action="/tasks/{task_id}/pause"' not in paused
    assert "Resumed" in send(visitor, f"/tasks/{task_id}/resume").text
    ended = send(visitor, f"/tasks/{task_id}/cancel", reason="no longer needed")
    assert "Canceled" in ended.text
    running.wait_for_task(client, task_id, "canceled")
    late = send(visitor, f"/tasks/{task_id}/pause")
    assert late.status_code == 409
    assert "Nothing to pause: the task was canceled" in late.text


def test_a_retry_says_what_runs_again_and_leads_to_the_new_task(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """What succeeded is kept and looks different; the old task links to the new one."""
    task_id = start(client, "failing")
    running.wait_for_task(client, task_id, "failed")
    text = visitor.get(f"/tasks/{task_id}").text
    assert "runs again: bad" in text
    assert "The results of fine are kept" in text
    page = send(visitor, f"/tasks/{task_id}/retry")
    retried = page.url.path.rpartition("/")[2]
    assert retried != task_id
    running.wait_for_task(client, retried, "failed")
    shown = visitor.get(f"/tasks/{retried}").text
    assert 'class="box kept"' in shown
    assert f'href="/tasks/{task_id}"' in shown
    old = visitor.get(f"/tasks/{task_id}").text
    assert f'href="/tasks/{retried}"' in old
    assert f'action="/tasks/{task_id}/retry"' not in old
    for shown in (old, visitor.get("/tasks").text):
        assert f'Retried as <a href="/tasks/{retried}">' in shown


def test_a_fork_names_the_effects_that_it_repeats_and_takes_an_edited_input(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The page of the fork spells out the consequences before anything starts."""
    task_id = start(client, "paying")
    running.wait_for_task(client, task_id, "succeeded")
    page = visitor.get(f"/tasks/{task_id}/fork?from=pay").text
    assert "Repeats the effects of: pay" in page
    assert 'value="5"' in page
    assert "Repeats no recorded effect" in visitor.get(f"/tasks/{task_id}/fork?from=tell").text
    bad = send(visitor, f"/tasks/{task_id}/fork/start", **{"from": "pay", "value:amount": "much"})
    assert bad.status_code == 422
    assert "must be an integer" in bad.text or "must be a whole number" in bad.text
    assert 'value="much"' in bad.text
    forked = send(visitor, f"/tasks/{task_id}/fork/start", **{"from": "pay", "value:amount": "7"})
    assert "it will repeat the effects of: pay" in forked.text
    new = running.wait_for_task(client, forked.url.path.rpartition("/")[2], "succeeded")
    assert (new["output"], new["input"]) == ("7", {"amount": 7})


def test_a_viewer_with_the_scope_read_sees_no_buttons(
    running: Running, visitor: httpx.Client, failed: str
) -> None:
    """Scopes decide which buttons exist, and the actions refuse as well."""
    with running.client("") as reader:
        reader.cookies.set(running.server.cookie, sign_in(running, "read", name="reader"))
        text = reader.get(f"/tasks/{failed}").text
        assert "What you can do" not in text
        assert f"/tasks/{failed}/retry" not in text
        assert reader.get(f"/tasks/{failed}/fork").status_code == 403
        assert send(reader, f"/tasks/{failed}/retry").status_code == 403


def test_a_task_that_does_not_exist(visitor: httpx.Client) -> None:
    """There is a page that says so."""
    for path in ("/tasks/nope", "/tasks/nope/steps/a", "/tasks/nope/fork"):
        missing = visitor.get(path)
        assert missing.status_code == 404
        assert "no task nope" in missing.text


def test_a_task_is_retried_on_the_newest_version(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The button appears with the newer version, and names both."""
    task_id = start(client, "failing")
    running.wait_for_task(client, task_id, "failed")
    assert "Retry on version" not in visitor.get(f"/tasks/{task_id}").text
    running.add_workflow(FAILING.replace('["false"]', '["true"]'))
    page = visitor.get(f"/tasks/{task_id}").text
    assert "Retry on version 2" in page
    assert "under version 2 of failing instead of 1" in page
    assert "On version 2, the newest" in visitor.get(f"/tasks/{task_id}/fork").text
    retried = send(visitor, f"/tasks/{task_id}/retry-latest").url.path.rpartition("/")[2]
    running.wait_for_task(client, retried, "succeeded")
    assert "version 2" in visitor.get(f"/tasks/{retried}").text


def test_a_retry_that_would_be_refused_is_not_offered(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The page says why, in its own words: what it keeps does not fit the newest version."""
    running.add_workflow(TWO_STEPS)
    task_id = start(client, "two-steps")
    running.wait_for_task(client, task_id, "failed")
    running.add_workflow(TWO_STEPS.replace("echo, one", "echo, two"))
    page = visitor.get(f"/tasks/{task_id}").text
    assert f"/tasks/{task_id}/retry-latest" not in page
    assert "Not possible: The steps that are kept do not fit version 2" in page
    assert "A fork from first on the newest version runs it again, with its effects." in page
    assert "It can go on with its own version." in page
    for path, refused in (("fork?from=second", True), ("fork?from=first", False)):
        fork = visitor.get(f"/tasks/{task_id}/{path}").text
        assert ('name="latest"' not in fork, "Not on version 2, the newest" in fork) == (
            refused,
        ) * 2
    sent = send(visitor, f"/tasks/{task_id}/retry-latest")
    assert sent.status_code == 409
    assert "--latest" not in sent.text
    retried = send(visitor, f"/tasks/{task_id}/retry").text
    assert "version 2 of two-steps is newer" in retried and "--latest" not in retried


def test_the_page_of_a_step_opens_the_failed_attempt(visitor: httpx.Client, failed: str) -> None:
    """Each attempt has its configuration and its log; the failed one is open."""
    text = visitor.get(f"/tasks/{failed}/steps/read").text
    assert "exit code 3" in text
    opened = re.findall(r"<details open id=\"attempt-(\d)-details\"", text)
    assert opened == ["2"]
    assert text.index("Attempt 2") < text.index("Attempt 1")
    assert text.count("connecting") >= 2
    assert "argv" in text


def test_the_page_of_a_group_lists_its_items(visitor: httpx.Client, failed: str) -> None:
    """Each item has a page of its own with its value."""
    group = visitor.get(f"/tasks/{failed}/steps/lines").text
    assert "lines[2]" in group
    assert "Waited " in group and "Waiting since" not in group, "its wait ended with it"
    item = visitor.get(f"/tasks/{failed}/steps/lines%5B2%5D")
    assert item.status_code == 200
    assert "Item</h2>" in item.text


def test_a_canceled_task_shows_what_it_may_have_done(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The step that was in the middle of an effect is canceled, which is not the same as not started."""
    running.add_workflow("name: sending\nsteps: {send: {shell: {argv: [sleep, '600']}}}\n")
    task_id = start(client, "sending")
    path = f"/tasks/{task_id}"
    wait_for(lambda: client.get(f"/api/v1{path}/steps/send").json()["calls"])
    client.post(f"/api/v1{path}/cancel")
    page, step = visitor.get(path).text, visitor.get(f"{path}/steps/send").text
    assert "may have happened" in page
    assert "1 canceled" in page
    assert "Not started" not in page + step
    assert "Did it take effect?" in step


def test_a_time_that_a_step_waits_for_is_shown_as_a_time(
    client: httpx.Client, visitor: httpx.Client
) -> None:
    """In the header, in the list of steps and on the step's page: the script writes it as local time."""
    task_id = start(client, "later")
    waits(client, task_id)
    text = visitor.get(f"/tasks/{task_id}").text
    assert re.search(r"<b>rest</b> is due <time datetime", text)
    assert re.search(r'<span class="step-why">is due <time datetime', text)
    assert "Is due <time datetime" in visitor.get(f"/tasks/{task_id}/steps/rest").text
    client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_a_child_that_only_waits_looks_so(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """Its status is running, as its parent's: the page shows what it does."""
    task_id = str(client.post("/api/v1/workflows/parent/tasks").json()["id"])

    def family() -> str | None:
        page = visitor.get(f"/tasks/{task_id}").text
        section = page.partition('id="family-title"')[2].partition("</section>")[0]
        return page if 'class="state waiting"' in section else None

    page = wait_for(family)
    row = page.partition('class="t-row t-child"')[2].partition("</svg>")[0]
    assert 'class="bar-wait waiting"' in row
    assert "bar-run" not in row
    client.post(f"/api/v1/tasks/{task_id}/cancel")


def test_a_retry_says_what_it_repeats_beside_its_button(visitor: httpx.Client, failed: str) -> None:
    """The card of the failed step is the first that a person sees, and has the button."""
    page = visitor.get(f"/tasks/{failed}").text
    card = page.partition('id="failed"')[2].partition("</section>")[0]
    # The first failure ends the task: the items of the group may have run to their ends, or not.
    assert re.search(r"A retry runs (lines, )?read, book again and keeps", card)
    assert "Recorded calls are not sent again." in card
