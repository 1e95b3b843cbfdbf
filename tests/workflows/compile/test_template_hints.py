"""Common mistakes in templates: the text that was meant is named, and nothing else is hidden."""

import pytest

from agent.workflows.compile import template_hints
from agent.workflows.compile.compiler import check_text

ROOTS = ("steps", "inputs", "item")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("inputs.a = 3", "inputs.a == 3"),
        ("inputs.a === 'x = y'", "inputs.a == 'x = y'"),
        ("inputs.a && !inputs.b", "inputs.a and not inputs.b"),
        ("inputs.a || inputs.b != 2", "inputs.a or inputs.b != 2"),
        ("{{ 'yes' if inputs.a = 1 else 'no' }}", "{{ 'yes' if inputs.a == 1 else 'no' }}"),
    ],
)
def test_operators_of_other_languages(written: str, meant: str) -> None:
    """The corrected text can be parsed; texts in quotes stay as they are."""
    found = template_hints.corrected(written)
    assert found is not None
    assert found[0] == meant


@pytest.mark.parametrize("text", ["inputs.a +", "inputs.a == 3 )", "a = = b"])
def test_other_errors_get_no_guess(text: str) -> None:
    """A correction that cannot be parsed either would mislead."""
    assert template_hints.corrected(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ steps.my-step.output }}", [("steps.my-step", "steps.my_step")]),
        ("inputs.max-amount > 3", [("inputs.max-amount", "inputs.max_amount")]),
        (
            "{{ steps.get.output.content-type }}",
            [("steps.get.output.content-type", "steps.get.output['content-type']")],
        ),
        ("{{ inputs.a-inputs.b }}", []),
        ("{{ inputs.a - inputs.b }}", []),
        ("{{ inputs.count-1 }}", []),
        ("{{ 'steps.my-step' }}", []),
        ("steps.my-step of {{ inputs.a }}", []),
        ("{{ steps.a.output['x-y'] }}", []),
    ],
)
def test_names_with_hyphens(text: str, expected: list[tuple[str, str]]) -> None:
    """Subtractions that were meant, texts in quotes and outside of braces are left alone."""
    assert list(template_hints.hyphenated(text, ROOTS)) == expected


def _problems(text: str) -> list[str]:
    return [str(problem).replace("<text>:", "") for problem in check_text(text)]


def test_a_mistake_hides_no_other() -> None:
    """What was meant is checked further, in the same template and in the triggers."""
    problems = _problems(
        "name: t\n"
        "on: {schedule: [{cron: '0 9 * * *', inputs: {nope: 1}}]}\n"
        "steps:\n"
        "  one: {python: {call: 'a:b'}}\n"
        "  two:\n"
        "    depends_on: one\n"
        "    if: steps.one.outputs = inputs.missing\n"
        "    python: {call: 'a:b', with: {x: '{{ steps.o-ne.output }}'}}\n"
    )
    text = "\n".join(problems)
    assert "7: steps.two.if" in text
    assert "= is written ==: steps.one.outputs == inputs.missing" in text
    assert "write steps.one.output" in text
    assert "no input 'missing'" in text
    assert "write steps.o_ne" in text
    assert "nope" in text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "name: t\nsteps:\n  a:\n    python:\n      call: |\n      one\n      two\n",
            "the text of `call: |` in line 5 is not indented: write line 6 as `        one`",
        ),
        ("name: t\nsteps:\n  a:\n  python: {call: 'a:b'}\n", "indent 'python' and what follows"),
        ("name: t\nsteps:\na:\n  python: {call: 'a:b'}\n", "indent the steps"),
        ("name: t\nsteps:\na:\n  python: {call: 'a:b'}\n", "indent it: a step 'a'"),
    ],
)
def test_missing_indentation_is_named(text: str, hint: str) -> None:
    """With the line, or the key, that was meant."""
    assert hint in "\n".join(_problems(text))


def test_a_step_without_its_keys_is_one_problem() -> None:
    """The keys behind it are not checked as if they were a step."""
    assert len(_problems("name: t\nsteps:\n  a:\n  python: {call: 'a:b'}\n")) == 1
