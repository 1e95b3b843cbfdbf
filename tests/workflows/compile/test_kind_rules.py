"""The rules of the real kinds of steps: a violation is reported with its key and what would be right."""

import pytest

from agent.workflows.compile.compiler import check_text, compile_text

BAD: list[tuple[str, str, str]] = [
    # the step, key, words
    ("shell: echo hello", "shell", "as in shell: {argv: [echo, hello]}"),
    ("shell: {argv: git commit -m}", "shell.argv", 'as in argv: [git, commit, "-m"]'),
    ("shell: {script: 'echo {{ inputs.x }}'}", "shell.script", "give the value by env"),
    ("shell: {argv: [a], effect: some}", "shell.effect", '"some" is not one of none, once'),
    ("http: {url: '{{ inputs.x }}'}", "http.url", "there is no key 'url' here; there are get"),
    ("shell: {argc: '{{ inputs.x }}'}", "shell.argc", "did you mean 'argv'?"),
    (
        "agent: {goal: '{{ inputs.x }}', tools: {shell: {aprove: never}}}",
        "agent.tools.shell.aprove",
        "did you mean 'approve'?",
    ),
    ("python: {with: {n: '{{ inputs.x }}'}}", "python.call", "'call' is missing"),
    ("http: {post: 'https://x', reconcile: {get: 'https://x', aplied: '{{ inputs.x }}'}}",
     "http.reconcile.aplied", "did you mean 'applied'?"),
    ("http: {get: 'https://x', expect: 9xx}", "http.expect", "is not a status such as 204"),
    ("shell:\n    argv: [a]", "argv", "indent it: it belongs to shell"),
    ("shell: {argv: [a]}\n    effect: none", "effect", "write it within shell"),
    ("run: echo", "run", "did you mean 'shell'?"),
    ("url: 'https://example.com'", "url", "did you mean 'http'?"),
    ("sleep: 5s", "sleep", "did you mean 'wait'?"),
    ("http: 'https://example.com'", "http", "as in http: {get:"),
    ("python: check", "python.call", "write it like 'my_steps:check'"),
    ("wait: 5", "wait.duration", "a duration is text with a unit, such as 5s"),
    ("wait: {duration: 0.5}", "wait.duration", "such as 0.5s"),
    ("wait: true", "wait.duration", "a duration is text"),
    ("wait: {signal: a b}", "wait.signal", "write it like 'approved'"),
    ("approval: {message: Well?, expires: 60}", "approval.expires", "such as 60s"),
    ("llm: {prompt: x, max_tokens: true}", "llm.max_tokens", "must be a number, and is true"),
    ("llm: {prompt: x, max_tokens: many}", "llm.max_tokens", "must be a whole number"),
    ("llm: {prompt: x, temperature: hot}", "llm.temperature", "must be a number"),
    ("llm: {prompt: x, temperature: true}", "llm.temperature", "must be a number, and is true"),
    ("llm: {prompt: x, json: maybe}", "llm.json", "must be true or false"),
    ("agent: {goal: x, max_turns: true}", "agent.max_turns", "must be a number, and is true"),
    ("agent: tidy up", "agent", "as in agent: {goal:"),
    ("http: {post: 'https://x', reconcile: {get: 'https://x', applied: 'response.status =='}}",
     "http.reconcile.applied", "cannot be read"),
    ("http: {post: 'https://x', reconcile: {get: 'https://x', applied: status == 200}}",
     "http.reconcile.applied", "there is no 'status' in templates"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "key", "words"), BAD)
def test_each_rule_of_a_kind_is_reported_with_its_key(step: str, key: str, words: str) -> None:
    """The message says what is wrong, where, and what would be right."""
    problems = check_text(f"name: x\nsteps:\n  a:\n    {step}\n", "f.yaml")
    found = [problem for problem in problems if words in str(problem)]
    assert found, "\n".join(map(str, problems))
    line = 4 + step.partition(f"{key}:")[0].count("\n") if "\n" in step else 4
    assert (found[0].line, found[0].key) == (line, f"steps.a.{key}")


def test_steps_named_only_in_applied_are_inputs() -> None:
    """Their outputs are among those that the attempt gets."""
    graph = compile_text(
        """
name: x
steps:
  first: {wait: 1ms}
  second: {depends_on: first, wait: 1ms}
  pay:
    depends_on: second
    http:
      post: "https://example.com"
      reconcile: {get: "https://example.com", applied: response.body.id == steps.first.output}
    on_unknown: reconcile
"""
    )
    assert graph.steps[2].refers_to == ["first"]


def test_a_script_may_use_braces_of_its_own() -> None:
    """Other programs have templates too: only what names our own values is a mistake."""
    script = "docker ps --format '{{ .Names }}' && echo '{{ item_name }} {{{ x }}}'"
    text = f"name: x\nsteps:\n  a:\n    shell:\n      script: {script!r}\n"
    assert check_text(text, "f.yaml") == []


@pytest.mark.parametrize(
    "step",
    [
        "http: {get: 'https://x', expect: '{{ inputs.x }}'}",
        "http: {get: '{{ inputs.x }}', params: {a: ['{{ inputs.x }}']}, expect: ['2xx', 404]}",
        "agent: {goal: x, tools: {a: {shell: {allow: '{{ inputs.x }}'}}}}",
    ],
)
def test_values_that_are_known_once_rendered_are_not_checked_before(step: str) -> None:
    """A template may stand wherever a value of its kind may stand."""
    text = f"name: x\ninputs: {{x: {{type: string}}}}\nsteps:\n  a:\n    {step}\n"
    assert check_text(text, "f.yaml") == []


@pytest.mark.parametrize("effect", ["none", "once"])
@pytest.mark.parametrize(
    "step",
    [
        "shell: {{argv: [a], effect: {0}}}",
        "python: {{call: 'm:f', effect: {0}}}",
        "worker: {{queue: q, effect: {0}}}",
        "agent: {{goal: x, tools: {{a: {{python: 'm:f', effect: {0}}}}}}}",
    ],
)
def test_effect_is_none_or_once_for_every_kind(step: str, effect: str) -> None:
    """The default may be written out: authors need not know which one it is."""
    assert check_text(f"name: x\nsteps:\n  a:\n    {step.format(effect)}\n", "f.yaml") == []
