"""An unknown effect whose request has changed since: a person sees both requests, then decides."""

import pytest

from agent.approvals import approval_documents
from agent.channels.chat import message_texts
from agent.cli.output import task_view
from agent.server.pages.inbox import answer_page
from agent.tasks.read_models import person_waits
from tests.support.approvals import everything, pending, say, token
from tests.support.engine import Engine, eventually, graph, step
from tests.support.step_functions import runs


def changed(engine: Engine, counted: str, on_unknown: str = "ask") -> str:
    """Run a task until it asks about an unknown effect whose request has changed."""
    given = {"token": counted, "on_unknown": on_unknown}
    task_id = engine.submit(graph(step("pay", "cut_off_and_changed", given=given)))
    eventually(lambda: engine.types(task_id).count("step.waiting") == 1)
    engine.skip(1000)
    eventually(lambda: pending(engine, task_id))
    return task_id


@pytest.mark.parametrize("on_unknown", ["ask", "retry"])
@pytest.mark.parametrize("verdict", ["done", "retry", "fail"])
def test_a_person_decides_on_both_requests(engine: Engine, verdict: str, on_unknown: str) -> None:
    """Done is the answer, retry sends the new request under its own key, fail fails."""
    counted = token()
    task_id = changed(engine, counted, on_unknown)
    (approval,) = pending(engine, task_id)
    assert approval["kind"] == "unknown"
    assert approval["message"].startswith("`pay#1` of step pay started at 20")
    assert "Did it happen? The step would now send another request" in approval["message"]
    was, now = ({"task": task_id, "attempt": attempt} for attempt in (1, 2))
    assert approval["request"]["request"] == was
    assert approval["request"]["now"] == {"action": "pay#1", "request": now}
    assert runs[counted] == [(task_id, 1)]
    output = {"verdict": "done", "output": {"paid": True}}
    say(engine, approval, "answer", value=output if verdict == "done" else verdict)
    done = engine.wait(task_id, "failed" if verdict == "fail" else "succeeded")
    if verdict == "fail":
        assert done["error"]["code"] == "outcome_unknown"
    else:
        assert done["output"] == {"pay": {"paid": True} if verdict == "done" else {"acts": 2}}
    assert len(runs[counted]) == (2 if verdict == "retry" else 1)
    keys = engine.rows("SELECT remote_key FROM tool_calls")
    assert len(set(keys)) == len(keys) == len(runs[counted])
    assert [found["status"] for found in everything(engine, task_id)] == ["answered"]


def test_both_requests_are_shown_wherever_an_answer_is_given(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the task's document, at the terminal, in chats and on the page behind a link."""
    task_id = changed(engine, token())
    document = engine.document(task_id)
    (on,) = person_waits.waits_on_person(document)
    assert on["was"] == {"action": "pay#1", "request": {"task": task_id, "attempt": 1}}
    assert on["now"] == {"action": "pay#1", "request": {"task": task_id, "attempt": 2}}
    lines: list[str] = []
    monkeypatch.setattr(task_view, "print_line", lambda text, _style="": lines.append(text))
    task_view.print_ending(document)
    (approval,) = pending(engine, task_id)
    with engine.database.connect("reader") as connection:
        asked = approval_documents.approval_document(connection, approval["id"])
    text, is_whole = message_texts.question(asked, 4000)
    page = bytes(answer_page.page(asked).body).decode()
    assert is_whole
    for said in ("\n".join(lines), text, page.replace("&#34;", '"')):
        assert '"attempt": 1' in said
        assert '"attempt": 2' in said
    assert "the request that would be sent now" in page
    say(engine, approval, "answer", value="fail")
    engine.wait(task_id, "failed")


def test_a_retry_of_the_task_compares_what_it_inherits(engine: Engine) -> None:
    """The new task has another id, and its request names it: nothing is sent before an answer."""
    counted = token()
    first = changed(engine, counted)
    say(engine, pending(engine, first)[0], "answer", value="fail")
    engine.wait(first, "failed")
    again = engine.operator.retry(first).task_id
    (approval,) = eventually(lambda: pending(engine, again))
    assert approval["request"]["request"] == {"task": first, "attempt": 1}
    assert approval["request"]["now"]["request"] == {"task": again, "attempt": 1}
    assert len(runs[counted]) == 1
    say(engine, approval, "answer", value="retry")
    assert engine.wait(again, "succeeded")["output"] == {"pay": {"acts": 2}}
    assert runs[counted] == [(first, 1), (again, 1)]
