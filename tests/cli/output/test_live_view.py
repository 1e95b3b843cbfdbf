"""What is on the screen while a task runs: a test on documents, without a terminal."""

from typing import Any

from agent.cli.output import live_view, terminal
from agent.workflows.graph import Fanout, Graph, Step

NOW = "2030-01-01T00:00:05.000Z"


def shown_step(name: str, status: str, **given: Any) -> dict[str, Any]:
    """Make what a task's document says of a step."""
    is_ended = status in ("succeeded", "failed", "skipped")
    return {
        "name": name, "index": 0, "kind": "shell", "status": status, "attempt": 1,
        "max_attempts": 3, "parallel_index": None, "parallel_count": None, "waiting_on": None,
        "error": None, "skip_reason": None, "wake_at": None, "started_at": "2030-01-01T00:00:00.000Z",
        "ended_at": NOW if is_ended else None,
    } | given  # fmt: skip


def shown_task(*steps: dict[str, Any]) -> dict[str, Any]:
    """Make a document of a running task."""
    return {
        "id": "01a1e789-73b7-7526-bc22-076a1ba79be8", "workflow": "x", "version": 2,
        "status": "running", "activity": "running", "started_at": NOW, "ended_at": NOW,
        "pause_reason": None,
        "usage": {"turns": 0}, "steps": list(steps),
    }  # fmt: skip


def test_each_step_says_what_it_is_at() -> None:
    """How long it took, how many items are done, which attempt it is, and what it waits on."""
    graph = Graph(
        name="x",
        steps=[
            Step(name="quick", kind="shell"),
            Step(name="many", kind="shell", fanout=Fanout(count=3)),
            Step(name="again", kind="shell"),
            Step(name="held", kind="wait"),
            Step(name="lost", kind="shell", condition="false"),
            Step(name="tried", kind="shell"),
            Step(name="none", kind="shell", fanout=Fanout(items=[])),
            Step(name="some", kind="shell", fanout=Fanout(count=2)),
        ],
    )
    document = shown_task(
        shown_step("quick", "succeeded"),
        shown_step("many", "waiting", index=1, parallel_count=3, waiting_on={"items": 3}),
        shown_step("many[0]", "succeeded", index=1, parallel_index=0, parallel_count=3),
        shown_step("many[1]", "running", index=1, parallel_index=1, parallel_count=3),
        shown_step(
            "again", "pending", index=2, attempt=2,
            error={"message": "no answer"}, wake_at="2030-01-01T00:00:00.000Z",
        ),
        shown_step("held", "waiting", index=3, kind="wait", waiting_on={"signal": "go"}),
        shown_step("lost", "skipped", index=4, skip_reason="if"),
        shown_step("tried", "succeeded", index=5, attempt=3),
        shown_step("none", "succeeded", index=6, parallel_count=0),
        shown_step("some", "succeeded", index=7, parallel_count=2),
    )  # fmt: skip
    text = live_view.running_view(document, graph, ["asked echo"], height=40).plain
    for words in (
        "quick  shell     succeeded  5.0 s",
        "many   shell ×3  waiting    1 of 3 done",
        "again  shell     pending    attempt 2 of 3, in ",
        ", after no answer",
        "tried  shell     succeeded  attempt 3 of 3, 5.0 s",
        "none   shell ×0  succeeded  5.0 s, no items",
        "some   shell ×2  succeeded  5.0 s, 2 items",
        "held   wait      waiting    waits for the signal 'go'",
        "lost   shell     skipped    its `if` was false; if false",
        "  asked echo\n",
        "● running: task 1ba79be8 of x version 2",
    ):
        assert words in text, text
    assert "running: task" not in live_view.last_view(document, graph).plain


def test_a_graph_too_tall_for_the_screen_shows_what_is_at_work() -> None:
    """Steps that run, wait or failed are listed; the others are counted."""
    names = [f"s{n}" for n in range(100)]
    graph = Graph(name="x", steps=[Step(name=name, kind="shell") for name in names])
    states = ["succeeded"] * 60 + ["failed"] + ["running"] * 30 + ["pending"] * 9
    steps = [shown_step(name, state) for name, state in zip(names, states, strict=True)]
    lines = live_view.running_view(shown_task(*steps), graph, [], height=20).plain.splitlines()
    assert len(lines) <= 17
    assert lines[0].startswith("✗ failed s60")
    assert lines[1].startswith("● running s61")
    assert lines[-2] == "… 61 of 100 steps done, 17 more active"


def test_texts_do_not_steer_the_terminal() -> None:
    """Colours are dropped; titles, cursor moves and turned writing are shown as escapes."""
    assert terminal.harmless("a\x1b[31mred\x1b[0m\tb\nc") == "ared\tb\nc"
    assert terminal.harmless("a\x1b]0;x\x07\x1b[2J\r\x9b") == "a\\x1b]0;x\\x07\\x1b[2J\\r\\x9b"
    assert terminal.harmless("pay \u202e001") == "pay \\u202e001"
    assert terminal.harmless("pay\u3164\u200e1\u2800") == "pay\\u3164\\u200e1\\u2800"
    assert terminal.to_json_text({"a": "\u202e\x9b"}) == '{\n  "a": "\\u202e\\u009b"\n}'
    assert terminal.harmless("Grüße 👩‍👩‍👧 שלום") == "Grüße 👩‍👩‍👧 שלום"
