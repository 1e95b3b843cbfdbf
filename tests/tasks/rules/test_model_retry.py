"""A retry of a task whose model answered badly: the last call is made again, the rest is kept."""

from collections.abc import Iterator
from typing import Any

import pytest

from agent.workflows.graph import Step
from tests.support.engine import NOW, Engine, Start, graph
from tests.support.model_servers import Provider, Say, providing
from tests.support.model_steps import catalog

BAD = "no JSON"
LOOK = Say("", tools=[("use_1", "look", {"value": 1})])
TOOL = {"python": "tests.support.step_functions:echo", "effect": "none"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Return a stand-in for a provider."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with providing() as provider:
        yield provider


def retried(engine: Engine, server: Provider, step: Step, *again: Say) -> dict[str, Any]:
    """Let a task fail, retry it with other answers, and return the new one."""
    first = engine.run(graph(step))
    assert first["status"] == "failed", first
    server.replies = list(again)
    server.requests.clear()
    answer = engine.operator.retry(first["id"])
    return engine.wait(answer.task_id, "succeeded", "failed")


@pytest.mark.parametrize(
    ("bad", "options"),
    [
        (Say("I will not", stop="content_filter"), {}),
        (Say("cut off", stop="length"), {}),
        (Say(BAD), {"json": True, "on_invalid": "fail"}),
        (Say(BAD), {"json": True, "on_invalid": "repair", "max_repairs": 1}),
        (Say(BAD), {"json": True, "on_invalid": "retry"}),
    ],
    ids=["refusal", "cut", "fail", "repair", "retry"],
)
def test_the_model_is_called_once_more(
    start: Start, server: Provider, bad: Say, options: dict[str, Any]
) -> None:
    """Exactly one more call is made, however the first task ended."""
    server.replies = [bad]
    engine = start(models=catalog(server))
    step = Step(name="it", kind="llm", config={"prompt": "hello", **options}, retry=NOW)
    again = retried(engine, server, step, Say("5"))
    assert again["status"] == "succeeded", again["error"]
    assert len(server.requests) == 1
    assert server.requests[0]["messages"][-1]["content"] == "hello"


@pytest.mark.parametrize("end", ["refusal", "max_turns", "repeated_calls"])
def test_a_retried_loop_continues_where_it_ended(start: Start, server: Provider, end: str) -> None:
    """The transcript is kept, and the new task has as many turns as the first."""
    server.replies = [LOOK, *([Say("no", stop="content_filter")] if end == "refusal" else [])]
    config = {"goal": "look", "tools": {"look": TOOL}, "max_turns": 3, "max_repeats": 10}
    if end == "repeated_calls":
        config |= {"max_turns": 10, "max_repeats": 2}
    engine = start(models=catalog(server))
    step = Step(name="it", kind="agent", config=config, retry=NOW)
    again = retried(engine, server, step, LOOK, Say("done"))
    assert again["output"] == {"it": "done"}, again["error"]
    assert len(server.requests) == 2
    kept = {"refusal": 1, "max_turns": 3, "repeated_calls": 3}[end]
    answers = [one for one in server.requests[0]["messages"] if one["role"] == "assistant"]
    assert len(answers) == kept
    used = {"refusal": 1, "max_turns": 1, "repeated_calls": 2}[end]
    own = (again["usage"]["turns"], again["usage"]["tools"])
    assert own == (2, used), "what it took over is not its own"
