"""The log of a step: its end first, live, in pages, searched, and as a file."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from agent.server.pages.tasks.log_page import end_of
from tests.support.browser import PATIENCE_MS, viewing
from tests.support.server import Running

GROWING = """\
name: growing
inputs: {gate: {type: string}}
steps:
  go: {wait: {signal: go}}
  write:
    depends_on: [go]
    shell:
      argv: [sh, -c, 'seq -f "line %.0f" 1 400; until [ -e "$1" ]; do sleep 0.05; done; echo "the last line"; sleep 600', sh, "{{ inputs.gate }}"]
      effect: none
"""
LONG = """\
name: long
steps:
  write:
    shell:
      script: 'seq -f "line %.0f of many, so that all of them are more than one page shows" 1 6000; echo "a <b>bold</b> ERROR" >&2; printf "\\033[1mend\\n"; exit 3'
      effect: none
    retry: {max_attempts: 2, delay: 1ms}
"""


@pytest.fixture(scope="module", autouse=True)
def _workflows(running: Running) -> None:
    running.add_workflow(GROWING)
    running.add_workflow(LONG)


@pytest.fixture(scope="module")
def failed(running: Running) -> Iterator[str]:
    """Return the address of a step that failed twice, with a long log."""
    with running.client() as client:
        task_id = _start(client, "long")
        running.wait_for_task(client, task_id, "failed")
        yield f"/tasks/{task_id}/steps/write"


def _start(client: httpx.Client, workflow: str, **values: object) -> str:
    answer = client.post(f"/api/v1/workflows/{workflow}/tasks", json={"input": values})
    return str(answer.json()["id"])


def test_the_log_of_a_running_step_grows_while_nothing_else_happens(
    browser: Browser,
    running: Running,
    client: httpx.Client,
    visitor: httpx.Client,
    tmp_path: Path,
) -> None:
    """A new line is shown without an event: a log stays at its end, or where a person reads above."""
    gate = tmp_path / "gate"
    task_id = _start(client, "growing", gate=str(gate))
    path = f"/tasks/{task_id}/steps/write"
    with viewing(browser, running) as viewer:
        reader = viewer.context.new_page()
        for page, address in ((reader, path), (viewer.page, f"{path}/log")):
            # Opened before the step runs: the page has no reason yet to look now and then.
            with page.expect_response(re.compile("/live")):
                page.goto(address)
        client.post(f"/api/v1/tasks/{task_id}/signals/go")
        for page in (reader, viewer.page):
            expect(page.locator(".log")).to_contain_text("line 400", timeout=PATIENCE_MS)
            assert page.locator(".log").evaluate(_IS_AT_END)
        top = reader.locator(".log")
        top.evaluate("log => { log.scrollTop = -log.scrollHeight }")
        before = top.evaluate("log => log.firstChild.getBoundingClientRect().top")
        with reader.expect_response(re.compile("steps/write$")):
            pass  # The page is as new as the last event; from here on there is none.
        gate.touch()
        for page in (viewer.page, reader):
            expect(page.locator(".log")).to_contain_text("the last line", timeout=PATIENCE_MS)
        assert viewer.page.locator(".log").evaluate(_IS_AT_END)
        assert top.evaluate("log => log.firstChild.getBoundingClientRect().top") == pytest.approx(
            before, abs=2
        )
    client.post(f"/api/v1/tasks/{task_id}/cancel")
    running.wait_for_task(client, task_id, "canceled")
    # The step stays on record as it was.
    assert 'data-every=""' in visitor.get(path).text


_IS_AT_END = """log => {
  const shown = log.getBoundingClientRect(), all = log.firstChild.getBoundingClientRect();
  return all.height > shown.height && all.bottom <= shown.bottom + 1 }"""


def test_a_failed_steps_log_opens_at_its_end(
    browser: Browser, running: Running, failed: str
) -> None:
    """On the page of the task and of the step: the reason stands in the last lines."""
    with viewing(browser, running) as viewer:
        for path in (failed, failed.partition("/steps")[0]):
            page = viewer.open(path)
            log = page.locator(".log").first
            expect(log).to_contain_text("ERROR")
            assert log.evaluate(_IS_AT_END)


def test_the_whole_log_is_reached_in_pages(visitor: httpx.Client, failed: str) -> None:
    """Every line of both attempts is on one of the pages, once; the newest are on the first."""
    assert f'href="{failed}/log?attempt=2"' in visitor.get(failed).text
    address: str | None = f"{failed}/log"
    pages: list[list[int]] = []
    while address:
        text = visitor.get(address).text
        assert len(text) < 400_000
        pages.insert(0, [int(number) for number in re.findall(r"line (\d+) of many", text)])
        found = re.search(r'href="([^"]*)" rel="next"', text)
        address = found and found[1].replace("&amp;", "&")
    assert len(pages) > 2
    assert [number for page in pages for number in page] == [*range(1, 6001)] * 2
    one = visitor.get(f"{failed}/log?attempt=1").text
    assert '<a href="' + failed + '/log?attempt=1" aria-current="true">' in one


def test_lines_are_searched_in_the_whole_log(visitor: httpx.Client, failed: str) -> None:
    """In any case, also far from the end, and as text: nothing in it is a pattern or markup."""
    text = visitor.get(f"{failed}/log?search=LINE%2017%20of").text
    assert re.findall(r"line \d+ of many", text) == ["line 17 of many"] * 2
    assert "a &lt;b&gt;bold&lt;/b&gt; ERROR" in visitor.get(f"{failed}/log?search=<b>").text
    assert "No line has this text" in visitor.get(f"{failed}/log?search=%25").text


def test_the_log_is_downloaded_as_a_file(visitor: httpx.Client, failed: str) -> None:
    """All of it or one attempt's, as plain text without control characters."""
    answer = visitor.get(f"{failed}/log.txt")
    assert answer.headers["content-type"].startswith("text/plain")
    assert re.fullmatch(
        r'attachment; filename="[0-9a-f]{8}-write.log"', answer.headers["content-disposition"]
    )
    lines = answer.text.splitlines()
    assert sum("of many" in line for line in lines) == 12_000
    assert "\\x1b[1mend" in lines
    one = visitor.get(f"{failed}/log.txt?attempt=2").text
    assert one.count("of many") == 6000
    assert visitor.get(f"{failed}s/log.txt").status_code == 404


def test_every_page_has_the_error_with_the_log(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """All lines of it, also where a list has one line for it."""
    running.add_workflow(
        "name: two-lines\nsteps:\n  tell:\n    shell: {script: 'echo the cause >&2; echo the end"
        " >&2; exit 3', effect: none}\n    retry: {max_attempts: 1}\n"
    )
    task_id = _start(client, "two-lines")
    running.wait_for_task(client, task_id, "failed")
    step = f"/tasks/{task_id}/steps/tell"
    for path in (f"/tasks/{task_id}", step, f"{step}/log"):
        text = visitor.get(path).text
        assert "exit code 3:\nthe cause\nthe end</pre>" in text, path
        assert "the end\n</span></span></pre>" in text, path
    for path in ("/tasks", f"/tasks/{task_id}"):
        assert "exit code 3: the cause the end<" in visitor.get(path).text


def test_the_log_of_a_kept_step_is_where_it_ran(
    running: Running, client: httpx.Client, visitor: httpx.Client
) -> None:
    """The retry has no lines of its own; the link leads to those of the first task."""
    running.add_workflow(
        "name: keeps\nsteps:\n  say: {shell: {argv: [echo, spoken], effect: none}}\n"
        "  fail: {depends_on: [say], shell: {argv: ['false'], effect: none}, retry: {max_attempts: 1}}\n"
    )
    task_id = _start(client, "keeps")
    running.wait_for_task(client, task_id, "failed")
    retry = client.post(f"/api/v1/tasks/{task_id}/retry").json()["task_id"]
    running.wait_for_task(client, retry, "failed")
    text = visitor.get(f"/tasks/{retry}/steps/say").text
    (link,) = re.findall(r'href="([^"]*/log\?attempt=1)"', text)
    assert "spoken\n</span>" in visitor.get(link).text


def test_a_log_is_cut_at_the_beginning_of_a_line() -> None:
    """The end stays whole, however long its last piece is."""
    pieces = [{"text": "one\ntwo\n"}, {"text": "three\n"}]
    assert end_of(pieces, 20) == pieces
    assert end_of(pieces, 12) == [{"text": "two\n"}, pieces[1]]
    assert end_of(pieces, 12, is_whole=True) == end_of(pieces, 7) == pieces[1:]
    assert end_of([{"text": "abcdef"}], 3) == [{"text": "def"}]
    assert end_of(pieces, 3, is_whole=True) == pieces[1:]
