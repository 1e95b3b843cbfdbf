"""From a workflow file to a graph: every key, every shorthand, every rule and its line."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agent.workflows.compile.compiler import check_text, compile_text
from agent.workflows.diagnostics import WorkflowError
from agent.workflows.graph import Graph, Step
from agent.workflows.kind_registry import KindSpec
from tests.support.hypothesis_profile import PATIENT
from tests.support.sample_kinds import KINDS


def compiled(text: str) -> Graph:
    """Compile with the sample kinds."""
    return compile_text(text, "f.yaml", KINDS)


def one_step(keys: str, before: str = "") -> Step:
    """Compile a workflow whose last step has these keys, and return that step."""
    text = f"name: x\n{before}\nsteps:\n  a: {{nap: }}\n  b: {{nap: , depends_on: a}}\n"
    return compiled(f"{text}  c: {{depends_on: b, {keys}}}\n").steps[-1]


def test_a_whole_workflow_becomes_a_graph() -> None:
    """Defaults are filled in, durations are seconds, and the order of the steps is kept."""
    graph = compiled(
        """
name: invoice-triage
description: a test
on:
  schedule: [{cron: "0 8 * * 1-5", timezone: Europe/Berlin, catch_up: latest, window: 6h}]
  webhook: {secret: "env:HOOK"}
inputs: {max: {type: number, default: 500}, who: {required: false}}
defaults: {timeout: 2m, retry: {max_attempts: 4, delay: 2s}}
max_parallel: 8
fail_fast: false
priority: high
budget: {tokens: 200000, usd: 0.5, time: 2d, on_exhausted: fail}
steps:
  fetch: {do: "{{ trigger.item.link }}"}
  lines:
    depends_on: [fetch]
    foreach: fetch.lines
    concurrency: 4
    do: {what: check, with: {line: "{{ item }}"}}
  pay:
    depends_on: lines
    if: "{{ steps.fetch.output.amount <= inputs.max }}"
    do: {what: "pay {{ steps.fetch.output.vendor }}"}
    timeout: 5s
    retry: {max_attempts: 1}
    on_unknown: ask
    output: {type: object}
  tell:
    depends_on: [pay]
    on_failure: run
    nap:
output: {vendor: "{{ steps.fetch.output.vendor }}"}
"""
    )
    assert [step.name for step in graph.steps] == ["fetch", "lines", "pay", "tell"]
    assert (graph.max_parallel, graph.fail_fast, graph.priority) == (8, False, "high")
    assert graph.timeout_seconds == 172_800
    assert graph.budget == {
        "tokens": 200_000, "usd": 0.5, "time_seconds": 172_800.0, "on_exhausted": "fail",
    }  # fmt: skip
    assert graph.inputs == {"max": {"type": "number", "default": 500}, "who": {"required": False}}
    assert graph.on["schedule"][0]["window_seconds"] == 21_600
    assert graph.on["webhook"] == {"verify": "standard", "secret": "env:HOOK"}
    fetch, lines, pay, tell = graph.steps
    assert fetch.config == {"what": "{{ trigger.item.link }}"}
    assert (fetch.timeout_seconds, fetch.retry.max_attempts) == (120, 4)
    assert lines.fanout is not None
    assert (lines.fanout.items_of, lines.fanout.concurrency) == ("steps.fetch.output.lines", 4)
    assert pay.condition == "steps.fetch.output.amount <= inputs.max"
    assert (pay.timeout_seconds, pay.retry.max_attempts, pay.retry.delay_seconds) == (5, 1, 2)
    assert (pay.depends_on, pay.refers_to, pay.on_unknown) == (["lines"], ["fetch"], "ask")
    assert (tell.run_on, tell.kind, tell.config) == ("always", "nap", {})
    assert Graph.model_validate_json(graph.text) == graph
    assert Graph.stored(graph.text, graph.hash) == graph
    assert graph.checked().text == graph.text


@pytest.mark.parametrize(
    ("keys", "fanout"),
    [
        ("foreach: a.files", {"items_of": "steps.a.output.files"}),
        ("foreach: a", {"items_of": "steps.a.output"}),
        ("foreach: 'a.files[0].parts'", {"items_of": "steps.a.output.files[0].parts"}),
        ("foreach: steps.a.output", {"items_of": "steps.a.output"}),
        ("foreach: inputs.list", {"items_of": "inputs.list"}),
        ("foreach: '{{ steps.a.output | sort }}'", {"items_of": "steps.a.output | sort"}),
        ("foreach: steps.a.output | sort", {"items_of": "steps.a.output | sort"}),
        ("foreach: [1, x]", {"items": [1, "x"]}),
        ("foreach: ['{{ steps.a.output }}']", {"items": ["{{ steps.a.output }}"]}),
        ("foreach: []", {"items": []}),
        ("parallel: 4", {"count": 4}),
        ("parallel: a.count", {"count_of": "steps.a.output.count"}),
        ("parallel: inputs.n", {"count_of": "inputs.n"}),
        ("parallel: '{{ inputs.n + 1 }}', concurrency: 2",
         {"count_of": "inputs.n + 1", "concurrency": 2}),
    ],
)  # fmt: skip
def test_groups_are_written_in_many_ways(keys: str, fanout: dict[str, Any]) -> None:
    """Shorthand, expressions, templates, lists and counts."""
    step = one_step(f"nap: , {keys}", "inputs: {list: list, n: {type: integer, default: 1}}")
    assert step.fanout is not None
    assert step.fanout.model_dump(exclude_none=True) == fanout


@pytest.mark.parametrize(
    ("keys", "condition"),
    [("if: inputs.n > 1", "inputs.n > 1"), ("if: '{{- inputs.n -}}'", "inputs.n"), ("if: true", "true"),
     ("if: false", "false"), ("if: \"steps.a.output == {'x': {'y': 1}}\"", "steps.a.output == {'x': {'y': 1}}"),
     ("if: \"{{ steps.a.output == {'x': {'y': 1}} }}\"", "steps.a.output == {'x': {'y': 1}}")],
)  # fmt: skip
def test_conditions_are_kept_as_expressions(keys: str, condition: str) -> None:
    """Braces around the whole are taken off."""
    assert one_step(f"nap: , {keys}", "inputs: {n: {default: 1}}").condition == condition


def test_a_step_may_read_what_is_upstream_beyond_its_dependencies() -> None:
    """Such steps are listed, so that the runner is given their outputs."""
    step = one_step("do: {what: '{{ steps.a.output }}', with: {x: '{{ steps.b.output }}'}}")
    assert (step.depends_on, step.refers_to) == (["b"], ["a"])


def test_a_key_that_is_not_rendered_is_not_checked() -> None:
    """A key that its kind takes as written may contain braces."""
    assert one_step("do: {what: x, raw: '{{.Names}} {{ nothing }'}").config["raw"].startswith("{{.")


class GateConfig(BaseModel):
    message: str
    editable: list[str] = []


GATED = {**KINDS, "approval": KindSpec("approval", lambda: GateConfig, short_key="message")}


def test_an_approval_stands_alone_or_before_another_kind() -> None:
    """Alone it is the step's kind; beside another it is that one's gate, and its templates count."""
    text = """
name: x
steps:
  a: {nap: }
  ask: {approval: "Begin?"}
  act: {depends_on: a, do: x, approval: {message: "{{ steps.a.output }}", editable: [what, with.y]}}
"""
    _, ask, act = compile_text(text, kinds=GATED).steps
    assert (ask.kind, ask.config, ask.approval) == ("approval", {"message": "Begin?"}, None)
    assert (act.kind, act.config) == ("do", {"what": "x"})
    assert act.approval == {"message": "{{ steps.a.output }}", "editable": ["what", "with.y"]}
    bad = check_text(text.replace("[what,", "[whit,").replace("on: a,", "on: ask,"), kinds=GATED)
    assert {problem.key for problem in bad} == {
        "steps.act.approval.editable",
        "steps.act.approval.message",
    }


def test_retry_is_merged_key_by_key() -> None:
    """A long delay alone lifts the longest delay with it."""
    step = one_step("nap: , retry: {delay: 10m}", "defaults: {retry: {max_attempts: 9}}")
    assert (step.retry.max_attempts, step.retry.delay_seconds) == (9, 600)
    assert step.retry.max_delay_seconds == 600


def test_equal_files_have_equal_hashes() -> None:
    """Comments and order of a mapping's keys make no new version; a changed value does."""
    first = compiled("name: x\nsteps: {a: {do: {what: y, count: 2}}}")
    second = compiled("# other\nsteps:\n  a:\n    do: {count: 2, what: y}\nname: x\n")
    third = compiled("name: x\nsteps: {a: {do: {what: y, count: 3}}}")
    assert first.hash == second.hash != third.hash


def test_a_graph_of_two_thousand_steps_compiles_quickly() -> None:
    """Chains, templates and wide joins; the bound is generous, for slow machines."""
    lines = ["name: large", "steps:", "  s0: {nap: }"]
    for number in range(1, 2000):
        lines += [
            f"  s{number}:",
            f"    depends_on: [s{number - 1}]",
            f'    do: {{what: go, with: {{x: "{{{{ steps.s{number // 2}.output }}}}"}}}}',
            "    timeout: 5m",
        ]
    lines += ["  join:", f"    depends_on: [{', '.join(f's{n}' for n in range(2000))}]", "    nap:"]
    started = time.thread_time()
    graph = compiled("\n".join(lines))
    assert time.thread_time() - started < 10
    assert len(graph.steps) == 2001
    assert graph.steps[1000].refers_to == ["s500"]


def test_every_cycle_is_reported_and_a_long_one_is_cut() -> None:
    """Cycles that share no step are reported one by one; a long path is shown by its ends."""
    text = "name: x\nsteps:\n"
    text += "  a: {nap: , depends_on: [c, b]}\n  b: {nap: , depends_on: [a]}\n"
    text += "  c: {nap: , depends_on: [b]}\n  d: {nap: , depends_on: [d]}\n"
    text += "".join(f"  s{n}: {{nap: , depends_on: [s{(n + 1) % 500}]}}\n" for n in range(500))
    paths = [problem.message.partition("cycle: ")[2] for problem in check_text(text, kinds=KINDS)]
    assert paths[:2] == ["a -> c -> b -> a", "d -> d"]
    assert len(paths) == 3
    assert paths[2].startswith("s0 -> s1 -> ")
    assert " -> ... 481 more ... -> " in paths[2]
    assert paths[2].endswith(" -> s499 -> s0")


BEGINNING = "name: x\nsteps:\n  a: {nap: }\n"
KEYS = st.sampled_from(
    ["name", "steps", "on", "inputs", "output", "if", "foreach", "parallel", "do", "nap", "a", "b",
     "depends_on", "retry", "timeout", "schedule", "cron", "type", "default", "what", "with",
     "budget", "x-y", "defaults", "concurrency", "max_parallel", "llm", "approval"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats(allow_nan=False)
    | KEYS | st.sampled_from(["{{ steps.a.output }}", "{{ item", "a.b", "5m", "-1s", "* * * * *",
                              "{% for %}", "{{ steps[0] }}", "", "\0", "\ud800", "string"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


@PATIENT
@given(st.dictionaries(KEYS, VALUES, max_size=6), st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_structure_is_compiled_or_refused(value: Any, steps: Any) -> None:
    """Whatever stands under whatever key, the answer is a graph or problems with places."""
    from agent.workflows.compile.compiler import compile_source
    from agent.workflows.yaml.source import Source

    source = Source("f", "")
    source.value = {"name": "x", "steps": steps, **value}
    try:
        assert isinstance(compile_source(source, KINDS), Graph)
    except WorkflowError as error:
        assert all(problem.message for problem in error.problems)


@PATIENT
@given(st.text(alphabet="abnmestp:-[]{},'\" \n\t&*<>|!#{}%5.", max_size=120))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    """Any text at all, alone and after a good beginning."""
    for content in (text, BEGINNING + text, BEGINNING + "  b: {nap: , " + text):
        check_text(content, kinds=KINDS)
