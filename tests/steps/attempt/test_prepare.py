from typing import Any

import pytest

from agent.steps.attempt import prepare
from agent.steps.attempt.secrets import Secrets
from agent.steps.types.attempt_input import Upstream
from agent.steps.types.outcome import Failed, Json, Outcome, Succeeded
from agent.workflows.graph import MAX_ITEMS, Fanout, Graph, Step
from tests.support.attempt import Trial, python, run

READ = {"read": Upstream("succeeded", {"amount": 4, "lines": ["a", "b"], "text": "{{ inputs }}"})}


def expand(fanout: dict[str, Any], **options: Any) -> Outcome:
    """Run a group's attempt, which decides its items."""
    trial = python(
        lambda: None,
        options={"fanout": Fanout(**fanout), **options},
        upstream=READ,
        claim={"is_group": True},
    )
    return run(trial.attempt())


@pytest.mark.parametrize(
    ("fanout", "items"),
    [
        ({"count": 3}, [0, 1, 2]),
        ({"count_of": "steps.read.output.amount"}, [0, 1, 2, 3]),
        ({"count_of": "steps.read.output.amount / 2"}, [0, 1]),
        ({"items_of": "steps.read.output.lines"}, ["a", "b"]),
        ({"items_of": "{{ steps.read.output.lines }}"}, ["a", "b"]),
        ({"items": ["{{ steps.read.output.amount }}", "x"]}, [4, "x"]),
    ],
)
def test_a_group_decides_its_items(fanout: dict[str, Any], items: list[Json]) -> None:
    """A count, a list and an expression for either all give the items."""
    assert expand(fanout) == Succeeded(items=items)


@pytest.mark.parametrize("fanout", [{"count": 0}, {"items": []}, {"items_of": "[]"}])
def test_zero_items_are_a_success(fanout: dict[str, Any]) -> None:
    """Nothing to do is done, with an empty list."""
    assert expand(fanout) == Succeeded(output=[], items=[])


@pytest.mark.parametrize(
    ("fanout", "message"),
    [
        ({"items_of": "steps.read.output.text"}, "must give a list"),
        ({"items_of": "steps.read.output"}, "must give a list"),
        ({"count_of": "steps.read.output.text"}, "must give a count"),
        ({"count_of": "true"}, "gives true, and must give a count"),
        ({"count_of": "steps.read.output.amount / 3"}, "must give a count"),
        ({"count_of": "-1"}, "must give a count"),
        (
            {"count_of": str(MAX_ITEMS + 1)},
            f"gives {MAX_ITEMS + 1:,} items, and {MAX_ITEMS:,} are allowed",
        ),
        ({"items_of": "steps.read.output.nothing"}, "nothing"),
    ],
)
def test_items_that_cannot_be_computed_fail_with_a_reason(
    fanout: dict[str, Any], message: str
) -> None:
    """What is no list, no count or too many is named in the message."""
    outcome = expand(fanout)
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "input"
    assert message in outcome.error.message


@pytest.mark.parametrize(
    ("condition", "is_run"),
    [
        ("steps.read.output.amount <= 4", True),
        ("steps.read.output.amount > 4", False),
        ("{{ steps.read.status == 'failed' }}", False),
    ],
)
def test_if_decides_whether_a_step_runs(condition: str, is_run: bool) -> None:
    """A false condition is a success that says it was skipped, and nothing runs."""
    ran = []
    trial = python(lambda: ran.append(1), options={"condition": condition}, upstream=READ)
    assert run(trial.attempt()) == (Succeeded() if is_run else Succeeded(skipped="if"))
    assert len(ran) == is_run


def test_a_condition_skips_a_whole_group_and_is_not_asked_for_its_items() -> None:
    """The group decides once; its items run."""
    fanout = {"count": 2}
    assert expand(fanout, condition="false") == Succeeded(skipped="if")
    trial = python(
        lambda: "ran",
        options={"fanout": fanout, "condition": "false"},
        claim={"parallel_index": 0, "parallel_count": 2},
    )
    assert run(trial.attempt()) == Succeeded("ran")


def test_templates_see_steps_inputs_items_and_the_task_and_data_is_not_rendered() -> None:
    """One lone expression keeps its type; a template inside data stays text."""

    def collect(**given: Json) -> Json:
        return given

    trial = python(
        collect,
        config={
            "with": {
                "data": "{{ steps.read.output.text }}",
                "lines": "{{ steps.read.output.lines }}",
                "place": "{{ parallel_index }} of {{ parallel_count }}",
                "item": "{{ item }}",
                "limit": "{{ inputs.limit }}",
                "task": "{{ task.id }}",
            }
        },
        inputs={"limit": 2.5},
        upstream=READ,
        claim={"parallel_index": 1, "parallel_count": 3, "item": {"k": None}},
    )
    assert run(trial.attempt()) == Succeeded(
        {
            "data": "{{ inputs }}",
            "lines": ["a", "b"],
            "place": "1 of 3",
            "item": {"k": None},
            "limit": 2.5,
            "task": "task-1",
        }
    )


def test_a_function_may_change_its_arguments_without_changing_the_definition() -> None:
    """A configuration that is kept between attempts is never the function's own."""

    def spoil(things: list[int]) -> int:
        things.append(1)
        return len(things)

    trial = python(spoil, config={"with": {"things": []}})
    assert [run(trial.attempt()), run(trial.attempt())] == [Succeeded(1), Succeeded(1)]


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("shell", {}, "exactly one of argv and script"),
        ("shell", {"argv": ["true"], "colour": 1}, "shell.colour"),
        ("shell", {"argv": ["a\0b"]}, "NUL"),
        ("http", {"get": "http://a/", "post": "http://b/"}, "exactly one of get"),
        ("http", {"get": "http://a/", "json": {}}, "takes no body"),
        ("http", {"get": "http://a/", "expect": "20x"}, "20x"),
        ("wait", {"duration": "5 parsecs"}, "wait.duration"),
        ("wait", {"duration": True}, "wait.duration"),
        ("shell", {"argv": "{{ inputs.missing | default(5) }}"}, "argv: must be a list, and is 5"),
        ("wait", {"duration": "{{ inputs.missing }}"}, "missing"),
        ("wait", {"until": "2030-01-01T00:00:00"}, "offset"),
        ("wait", {}, "exactly one of duration"),
        ("workflow", {"name": "Not A Name"}, "workflow.name"),
        ("dance", {}, "dance"),
    ],
)
def test_a_configuration_that_is_wrong_fails_with_its_key(
    kind: str, config: dict[str, Json], message: str
) -> None:
    """Bad keys fail the step without retry, before anything begins."""
    trial = Trial(kind, config)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert outcome.error.kind == "input"
    assert message in outcome.error.message
    assert trial.journal.intents == []


def test_an_output_that_two_threads_read_first_is_read_by_both() -> None:
    """One of them may decode and drop the text after the other has seen that there is one."""

    class Shared(Upstream):
        """An ended step whose text another thread drops after it was looked at once."""

        def __init__(self, text: str) -> None:
            super().__init__("succeeded", text=text)
            self._looks = iter([text])

        @property
        def _text(self) -> str | None:
            return next(self._looks, None)

        @_text.setter
        def _text(self, _: str | None) -> None: ...

    assert Shared('{"amount": 4}').output == {"amount": 4}
    assert Shared('{"amount": 4}').is_small


def test_the_secrets_of_a_workflow_are_hidden_without_a_check_of_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A workflow may have 20,000 steps; each configuration is checked when its step runs."""
    monkeypatch.setenv("TOKEN_OF_ONE", "the-secret-of-one")
    monkeypatch.setenv("TOKEN_OF_TWO", "the-secret-of-two")
    graph = Graph(
        name="w",
        steps=[
            Step(
                name="one", kind="shell", config={"argv": ["x"], "env": {"A": "env:TOKEN_OF_ONE"}}
            ),
            Step(
                name="two",
                kind="http",
                config={"url": "https://localhost", "headers": {"A": "Bearer env:TOKEN_OF_TWO"}},
            ),
            Step(name="three", kind="of another version", config={"env": {"A": "env:OTHER"}}),
        ],
    )
    monkeypatch.setattr(prepare, "check_config", None)
    prepare.watch_secrets(graph)
    text = "the-secret-of-one and the-secret-of-two"
    assert Secrets().redact(text) == "[redacted] and [redacted]"


def test_definitions_that_come_and_go_are_not_all_kept() -> None:
    """A worker that knows many workflows reads some of them again and again."""
    step = Step(name="one", kind="python", config={"call": "m:f"})
    for _ in range(2 * prepare._MAX_WATCHED):
        prepare.watch_secrets(Graph(name="w", steps=[step]))
    assert len(prepare._watched) <= prepare._MAX_WATCHED
