"""Problems as people and programs read them."""

from agent.workflows.compile.compiler import check_text
from agent.workflows.diagnostics import Problem, Suggestions, did_you_mean, show, write_key
from tests.support.sample_kinds import KINDS


def test_a_problem_is_shown_with_its_line_and_a_caret() -> None:
    """File, line, key, what is wrong, what would be right, and the place itself."""
    text = "name: x\nsteps:\n  a: {nap: }\n  b: {nap: , depends_on: [aa]}\n"
    shown = show(check_text(text, "flow.yaml", KINDS), {"flow.yaml": text})
    assert shown.splitlines() == [
        "flow.yaml:4: steps.b.depends_on[0]: there is no step 'aa'; did you mean 'a'?",
        "  4 |   b: {nap: , depends_on: [aa]}",
        "    |                           ^",
    ]


def test_a_problem_is_shown_without_its_text_too() -> None:
    """Where the file cannot be read again there is no excerpt."""
    problem = Problem("f.yaml", None, None, "", "cannot be read")
    assert show([problem]) == "f.yaml: cannot be read"


def test_a_problem_is_one_document() -> None:
    """For `--json`."""
    assert Problem("f", 1, 2, "k", "m", "h").document() == {
        "file": "f", "line": 1, "column": 2, "key": "k", "message": "m", "hint": "h",
    }  # fmt: skip


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A key or a text with an escape sequence in it is shown as text."""
    text = 'name: x\n"\\e[31mred": 1\nsteps: {a: {nap: }}\n'
    problems = check_text(text, "f\x1b.yaml", KINDS)
    assert "\x1b" not in show(problems, {"f\x1b.yaml": text})


def test_words_and_paths() -> None:
    """Near words are suggested, far ones are not; paths are written as people do."""
    assert did_you_mean("htpp", ["http", "shell"]) == "did you mean 'http'?"
    assert did_you_mean("zzz", ["http"]) is None
    assert write_key(("steps", "a", "depends_on", 0)) == "steps.a.depends_on[0]"


def test_no_message_is_too_long_to_read() -> None:
    """A file's own huge names are cut, also where all of them would be listed."""
    many = ", ".join(f"input_number_{n}: {{}}" for n in range(1000))
    text = (
        f"name: x\ninputs: {{{many}}}\nsteps:\n"
        f"  a: {{do: '{{{{ inputs.{'y' * 900} }}}}'}}\n"
        f"  b: {{do: '{{{{ inputs.q }}}}', {'z' * 1000}: 1}}\n"
    )
    problems = check_text(text, "f.yaml", KINDS)
    assert len(problems) == 3
    assert max(len(str(problem)) for problem in problems) < 1600


def test_suggestions_among_thousands_are_few_and_cheap() -> None:
    """The nearest of very many words is found; after a hundred no more are looked for."""
    near = Suggestions(f"step_number_{n}" for n in range(20_000))
    assert near.near("stp_number_777") == "did you mean 'step_number_777'?"
    assert near.near("stp_number_77", but="step_number_77") != "did you mean 'step_number_77'?"
    assert [near.near("step_number_1x") is None for _ in range(200)].count(False) == 98


def test_of_very_many_problems_the_first_are_reported() -> None:
    """The last one says how many more there are."""
    text = "name: x\nsteps: {}\n" + "".join(f"k{n}: 1\n" for n in range(1199))
    problems = check_text(text, "flow.yaml", KINDS)
    assert len(problems) == 1001
    assert str(problems[-1]) == "flow.yaml: there are 200 more problems"
