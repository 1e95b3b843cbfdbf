"""Templates that are read without Jinja: what they look up is what Jinja finds."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.workflows.templates import jinja_expressions, plain_syntax
from agent.workflows.templates.expressions import parse_expression, parse_template
from agent.workflows.templates.filters import COMPILERS_OWN, allowed_filters
from agent.workflows.templates.limits import Meter, TemplateError

WORDS = (
    "steps",
    "inputs",
    "a",
    "b_1",
    "output",
    "_x",
    "loop",
    "range",
    "true",
    "None",
    "not",
    "if",
    "is",
)
TOKENS = (
    *WORDS, ".", "[0]", "[12]", "[", "]", " ", "|", "trim", "upper", "nosuch", "counted", "==", "!=", "<", ">=",
    "=", "0", "007", "42", "'x'", '"y"', "'", "-", "(", ")", "{", "}", "\n",
)  # fmt: skip
BRACES = ("{{", "}}", "{{ ", " }}", "{%", "{#", "#}", "text ")
expressions = st.lists(st.sampled_from(TOKENS), max_size=9).map("".join)
templates = st.lists(
    st.one_of(
        st.sampled_from((*TOKENS, *BRACES)),
        st.builds("{{{{ {}.{}{}{} }}}}".format, *[st.sampled_from(WORDS)] * 2,
                  st.sampled_from(["", " | trim", "|lower | int", " | counted"]),
                  st.sampled_from(["", " == 1", " != 'x'", "<inputs.b", " > 01"])),
    ),
    max_size=6,
).map("".join)  # fmt: skip


@given(templates)
def test_a_template_that_is_read_here_is_one_that_jinja_reads_alike(text: str) -> None:
    """The same lookups, and the same names that are read whole."""
    lookups = plain_syntax.read_template(text)
    if lookups is not None:
        found, dynamic, _ = jinja_expressions.parse_template(text)
        assert (found, dynamic) == (lookups, plain_syntax.names_read_whole(lookups))


@given(expressions)
def test_an_expression_that_is_read_here_is_one_that_jinja_reads_alike(text: str) -> None:
    """The same for the text of an `if`."""
    lookups = plain_syntax.read_expression(text)
    if lookups is not None:
        found, dynamic, _ = jinja_expressions.parse_expression(text)
        assert (found, dynamic) == (lookups, plain_syntax.names_read_whole(lookups))


def test_every_filter_that_is_read_here_is_one_of_templates() -> None:
    """A filter that templates do not have is left to Jinja, which says so."""
    assert allowed_filters().keys() - COMPILERS_OWN >= plain_syntax.FILTERS
    with pytest.raises(TemplateError, match="there is no filter 'nosuch'"):
        parse_template("{{ inputs.a | nosuch }}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ inputs.n }}", 3),
        ("{{ inputs.t | trim }}", "x"),
        ("{{ inputs.n > 2 }}", True),
        ("n is {{ inputs.n }}, t is {{ inputs.t | trim | upper }}.", "n is 3, t is X."),
    ],
)
def test_what_is_read_here_is_computed_by_jinja(text: str, value: object) -> None:
    """A lone expression yields its value with its type; other texts are texts."""
    parsed = parse_template(text)
    assert plain_syntax.read_template(text) == parsed.lookups
    for _ in range(2):
        assert parsed.compute({"inputs": {"n": 3, "t": " x "}}, Meter()) == value


def test_an_expression_is_computed_too() -> None:
    """As in `if: inputs.n == 3`."""
    parsed = parse_expression("inputs.n == 3")
    assert parsed.lookups == (("inputs", "n"),)
    assert parsed.compute({"inputs": {"n": 3}}, Meter()) is True


def test_simple_templates_are_checked_without_jinja() -> None:
    """Jinja is imported by the first template of another form."""
    program = (
        "import sys\n"
        "from agent.workflows.templates.expressions import parse_expression, parse_template\n"
        "parse_template('see {{ steps.a.output.b | trim }}'); parse_expression('inputs.n == 3')\n"
        "assert 'jinja2' not in sys.modules\n"
        "parse_template('{{ inputs.n + 1 }}')\n"
        "assert 'jinja2' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
