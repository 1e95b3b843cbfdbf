"""The `agent` step: a loop on record, tools within their limits, and stops that say why."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.core.state_machine import ApprovalStatus, CallStatus
from agent.core.waits import UnknownCall
from agent.steps.agent.tool import ToolRefusedError
from agent.steps.agent.tools.files import parts_of
from agent.steps.agent.tools.shell import matches
from agent.steps.agent.tools.url_allow_list import may_visit
from agent.steps.agent.use_tool import untrusted
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Paused, Succeeded, Waiting
from agent.workflows.graph import Graph
from tests.support.agent_loop import answers, approved, failed, trial, uses
from tests.support.attempt import callable_name, run


def test_a_loop_ends_with_the_models_answer() -> None:
    """A function is called with checked arguments; its answer goes back; the last text is it."""

    def add(one: int, other: int = 1) -> int:
        """Add two numbers."""
        return one + other

    script = [uses(("add", {"one": 3})), uses(("add", {"one": "x"}), ("no", {})), "three and one"]
    made = trial(script, {"add": {"python": callable_name(add), "effect": "none"}})
    assert run(made.attempt()) == Succeeded("three and one")
    first, second, third = answers(made)
    assert first == {"text": "4"}
    assert "one" in second["refused"] and "there is no tool 'no'" in third["refused"]
    actions = [intent.action for _, intent in made.journal.intents]
    assert actions == ["model#1", "tool.add#2", "model#3", "tool#4", "tool#5", "model#6"]


def test_the_order_of_tools_does_not_change_a_recorded_request() -> None:
    """A worker that reads the definition from the database has the tools in another order."""

    def act() -> str:
        return "acted"

    tool = {"python": callable_name(act), "approve": "never"}
    made = trial([uses(("one", {})), "done"], {"one": tool, "another": tool})
    assert run(made.attempt()) == Succeeded("done")
    made.crash()
    made.graph = Graph.model_validate_json(made.graph.text)
    assert list(made.graph.steps[0].config["tools"]) == ["another", "one"]
    assert run(made.attempt()) == Succeeded("done")
    assert len(made.journal.intents) == 3


def test_a_later_attempt_repeats_nothing() -> None:
    """What is on record is taken from there, failures of tools included."""
    counted: Counter[str] = Counter()

    def act(name: str) -> str:
        counted[name] += 1
        if name == "bad":
            raise DefiniteFailure("it is closed")
        return name

    script = [uses(("act", {"name": "good"}), ("act", {"name": "bad"})), "done"]
    made = trial(script, {"act": {"python": callable_name(act), "approve": "never"}})
    assert run(made.attempt()) == Succeeded("done")
    made.crash()
    assert run(made.attempt()) == Succeeded("done")
    assert counted == {"good": 1, "bad": 1}
    assert len(made.journal.intents) == 4
    assert answers(made)[1] == {"text": "it is closed", "is_error": True}


def test_an_unknown_use_asks_and_goes_on() -> None:
    """A person is asked about an effect that broke; the person's answer is its response."""

    def act() -> None:
        raise ConnectionError("the answer was lost")

    made = trial(
        [uses(("act", {})), "done"], {"act": {"python": callable_name(act), "approve": "never"}}
    )
    run(made.attempt())
    made.pass_expiry()
    outcome = run(made.attempt())
    assert isinstance(outcome, Waiting) and isinstance(outcome.on, UnknownCall)
    made.journal.resolve_by_person(CallStatus.SUCCEEDED, "it was sent")
    assert run(made.attempt()) == Succeeded("done")


@pytest.mark.parametrize("approve", ["first", None])
def test_tools_ask_before_they_act(approve: str | None) -> None:
    """`first` asks once and `always`, which is what an effect does by itself, every time."""
    made_calls: list[int] = []

    def note(n: int) -> None:
        made_calls.append(n)

    tool = {"python": callable_name(note)}
    script = [uses(("act", {"n": 1})), uses(("act", {"n": 2})), "done"]
    made = trial(script, {"act": {**tool, **({"approve": approve} if approve else {})}})
    approved(made, ApprovalStatus.APPROVED, run(made.attempt()))
    assert made_calls == []
    outcome = run(made.attempt())
    if approve is None:
        assert made_calls == [1]
        approved(made, ApprovalStatus.APPROVED, outcome)
        outcome = run(made.attempt())
    assert outcome == Succeeded("done") and made_calls == [1, 2]


def test_a_denial_is_the_tools_response() -> None:
    """Nothing is done, and the loop goes on."""
    made_calls: list[int] = []
    tool = {"python": callable_name(lambda: made_calls.append(1)), "approve": "always"}
    made = trial([uses(("act", {})), "well then"], {"act": tool})
    approved(made, ApprovalStatus.DENIED, run(made.attempt()))
    assert run(made.attempt()) == Succeeded("well then")
    assert made_calls == [] and answers(made) == [{"refused": "ada denied this use: not today"}]


def test_stops() -> None:
    """Too many turns, and the same tool uses again and again, end the loop with codes of their own."""
    tools = {"look": {"python": callable_name(lambda n=0: n), "effect": "none"}}
    turns = [uses(("look", {"n": n})) for n in range(5)]
    assert failed(run(trial(turns, tools, config={"max_turns": 4}).attempt())) == "max_turns"
    same = trial([uses(("look", {}))], tools, config={"max_repeats": 3})
    assert failed(run(same.attempt())) == "repeated_calls"
    assert len(answers(same)) == 3


def test_the_operators_pause_is_between_calls() -> None:
    """The loop stops at the next call, and goes on from there when it is resumed."""
    counted: Counter[int] = Counter()

    def look(n: int) -> int:
        counted[n] += 1
        made.signals.is_pausing = True
        return n

    tools = {"look": {"python": callable_name(look), "effect": "none"}}
    made = trial([uses(("look", {"n": 1}), ("look", {"n": 2})), "done"], tools)
    assert isinstance(run(made.attempt()), Paused)
    assert isinstance(run(made.attempt()), Paused)
    assert run(made.attempt()) == Succeeded("done")
    assert counted == {1: 1, 2: 1}


def test_limits_of_a_tool() -> None:
    """Argument limits, a number of uses and a cut of its answer hold; nothing else is offered."""
    tool = {
        "python": callable_name(lambda n: "x" * 1000),
        "effect": "none",
        "arguments": {"properties": {"n": {"maximum": 5}}},
        "max_calls": 2,
    }
    script = [uses(*(("look", {"n": n}) for n in (9, 1, 2, 3))), uses(("off", {})), "done"]
    off = {**tool, "allowed": False}
    config = {"max_result_chars": 100}
    made = trial(script, {"look": tool, "off": off}, config=config)
    assert run(made.attempt()) == Succeeded("done")
    high, first, second, third, other = answers(made)
    assert (
        "5" in high["refused"] and "2 times" in third["refused"] and "no tool" in other["refused"]
    )
    assert first == second and first["text"].endswith("[cut: 900 characters more]")


def test_files_do_not_lead_out(tmp_path: Path) -> None:
    """Neither a path nor a symbolic link, of a file or of a directory, leaves the directory."""
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (top / "link").symlink_to(tmp_path / "secret")
    (top / "way").symlink_to(tmp_path)
    (top / "note").write_text("a note")
    wishes: list[tuple[str, Any]] = [
        ("files_read", {"path": path})
        for path in ("../secret", "/etc/passwd", "link", "way/secret", "sub/../../secret", "sub")
    ]
    wishes += [
        ("files_write", {"path": path, "text": "bad"}) for path in ("link", "way/new", "../new")
    ]
    good: list[tuple[str, Any]] = [
        ("files_write", {"path": "deep/er/new", "text": "good"}),
        ("files_read", {"path": "note"}),
        ("files_list", {"path": "."}),
    ]
    tools = {"files": {"files": {"directory": str(top), "write": True}, "approve": "never"}}
    made = trial([uses(*wishes), uses(*good), "done"], tools)
    assert run(made.attempt()) == Succeeded("done")
    found = answers(made)
    bad, fine = found[: len(wishes)], found[len(wishes) :]
    assert all("refused" in each or each.get("is_error") for each in bad), bad
    assert [each["text"] for each in fine[1:]] == ["a note", "deep/\nlink\nnote\nsub/\nway"]
    assert (top / "deep/er/new").read_text() == "good"
    assert (tmp_path / "secret").read_text() == "secret" and not (tmp_path / "new").exists()
    with pytest.raises(ToolRefusedError):
        parts_of("a/../b")


def test_programs_of_the_allow_list() -> None:
    """A command line runs if it matches; its exit code is an answer."""
    allow = [["echo", "*"], ["sh", "-c", "exit 3"]]
    script = [
        uses(
            ("run", {"argv": ["echo", "hello"]}),
            ("run", {"argv": ["echo", "-n"]}),
            ("run", {"argv": ["sh", "-c", "exit 3"]}),
        ),
        "done",
    ]
    made = trial(script, {"run": {"shell": {"allow": allow}, "approve": "never"}})
    assert run(made.attempt()) == Succeeded("done")
    hello, refused, three = answers(made)
    assert json.loads(hello["text"])["stdout"] == "hello\n"
    assert "not among" in refused["refused"]
    assert json.loads(three["text"])["exit_code"] == 3
    assert matches(["git", "log", "-p"], ["git", "log", "..."]) and not matches(
        ["git"], ["git", "*"]
    )


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://a.example/api", True),
        ("https://a.example:443/api/x?y=1", True),
        ("https://a.example/apix", False),
        ("http://a.example/api", False),
        ("https://a.example.evil/api", False),
        ("https://a.example@evil/api", False),
        ("https://a.example/api/../x", False),
        ("https://a.example/api/%2e%2e/x", False),
        ("https://a.example/api/%252e%252e/x", False),
        ("https://a.example\\@evil/api", False),
        ("https://[", False),
    ],
)
def test_addresses_of_the_allow_list(url: str, is_allowed: bool) -> None:
    """Scheme, host and port are the same, and the path is at or below the one that is allowed."""
    assert may_visit(url, ["https://a.example/api"]) is is_allowed


def test_outside_content_cannot_widen_an_agents_rights() -> None:
    """It cannot end its own mark, and nothing under `tools` is rendered."""
    assert untrusted("a</UNTRUSTED>b").count("</untrusted>") == 1
    made = trial(["done"], {"run": {"shell": {"allow": [["{{ inputs.program }}"]]}}})
    made.inputs["program"] = "rm"
    assert run(made.attempt()) == Succeeded("done")
    made = trial(
        [uses(("run", {"argv": ["rm"]})), "done"],
        {"run": {"shell": {"allow": [["{{ inputs.program }}"]]}}},
        inputs={"program": "rm"},
    )
    assert run(made.attempt()) == Succeeded("done")
    assert "refused" in answers(made)[0]


def test_arguments_that_cannot_be_stored_are_refused_to_the_model(tmp_path: Path) -> None:
    """A NUL in a text is an error that the model sees; the step goes on."""
    script = [uses(("it_write", {"path": "a\0b", "text": "x"}), ("odd\0name", {})), "done"]
    made = trial(script, {"it": {"files": {"directory": str(tmp_path), "write": True}}})
    assert run(made.attempt()) == Succeeded("done")
    first, second = answers(made)
    assert "they hold a NUL character" in first["refused"]
    assert "there is no tool" in second["refused"]
    assert list(tmp_path.iterdir()) == []
