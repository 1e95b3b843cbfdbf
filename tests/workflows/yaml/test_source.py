"""Reading YAML: plain values with their lines, and clear refusals of everything else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from agent.workflows.compile.compiler import check_text
from agent.workflows.diagnostics import Problem, WorkflowError
from agent.workflows.yaml.fast_scanner import events
from agent.workflows.yaml.source import MAX_BYTES, read_source
from tests.support.hypothesis_profile import PATIENT
from tests.support.sample_kinds import KINDS


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("on: yes", {"on": "yes"}),
        ("off: no", {"off": "no"}),
        ("a: [1, -2, +3, 007, 0x1f, 0o17, 1.5, .5, 1e3, -1.5E-3]",
         {"a": [1, -2, 3, 7, 31, 15, 1.5, 0.5, 1000.0, -0.0015]}),
        ("a: [~, null, Null, '', true, True, FALSE, 'true', \"1\"]",
         {"a": [None, None, None, "", True, True, False, "true", "1"]}),
        ("a: [1_000, 12:30, 2024-01-01, 1.2.3, =, y]",
         {"a": ["1_000", "12:30", "2024-01-01", "1.2.3", "=", "y"]}),
        ("a:", {"a": None}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("a: >\n  x\n  y\n", {"a": "x y\n"}),
        ("a: &x [1]\nb: *x\n", {"a": [1], "b": [1]}),
        ("a: &x 5\nb: *x\n", {"a": 5, "b": 5}),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\n", {"a": {"k": 1, "l": 2}, "b": {"l": 3, "k": 1}}),
        ("a: &x {k: 1}\nb: &y {l: 2}\nc: {<<: [*x, *y]}\n",
         {"a": {"k": 1}, "b": {"l": 2}, "c": {"k": 1, "l": 2}}),
        ("? a\n: b\n", {"a": "b"}),
        ("a:\n- b\n- c: d\n", {"a": ["b", {"c": "d"}]}),
        ("%YAML 1.2\n---\na: b\n", {"a": "b"}),
        ("# only a comment\n", None),
        ("a: 'ä€😀'", {"a": "ä€😀"}),
    ],
)  # fmt: skip
def test_yaml_becomes_plain_values(text: str, value: Any) -> None:
    """YAML 1.2's own rules for what is text, a number or nothing."""
    assert read_source("f", text).value == value
    assert read_source("f", b"\xef\xbb\xbf" + text.encode()).value == value


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is already set in line 1"),
        ("s:\n  x: 1\n  x: 2\n", 3, "already set in line 2"),
        ("{a: 1, a: 2}", 1, "already set"),
        ("a: [", 1, "the file ends where a value belongs"),
        ("a: 1\nb: [x\n\n", 2, "this [ is never closed"),
        ("a: 1\nb: {c: d\n\n", 2, "this { is never closed"),
        ("a: 1\nb: 'x\n\n", 2, "this quote is never closed"),
        ("a: [b\nc: d", 2, "a comma or ']' is missing"),
        ("a: b: c", 1, "there cannot be a ':'"),
        ("a:\n\tb: 1", 2, "a tab cannot indent"),
        ("a: @x", 1, "cannot begin with @"),
        ("a:\n    b: 1\n   c: 1\n", 3, "does not fit the lines above"),
        ("a: 'it's'", 1, "does not fit"),
        ('a: "\\q"', 1, "not YAML: found unknown escape"),
        ("a:\n  b: {{ inputs.x }}", 2, "braces that are not in quotes"),
        ("a: [{{ inputs.x }}]", 1, "braces that are not in quotes"),
        ("1: x", 1, "put it in quotes"),
        ("true: x", 1, "put it in quotes"),
        ("~: x", 1, "put it in quotes"),
        ("[a]: x", 1, "a key is text"),
        ("a: !!python/object:os.system x", 1, "tags are not used"),
        ("a: !!str 5", 1, "tags are not used"),
        ("a: !mine {b: 1}", 1, "tags are not used"),
        ("a: *nowhere", 1, "is used before &nowhere"),
        ("a: &a [*a]", 1, "is used before &a"),
        ("a: 1\n---\nb: 2\n", 2, "several documents"),
        ("a: .inf", 1, "not a number"),
        ("a: -.INF", 1, "not a number"),
        ("a: .nan", 1, "not a number"),
        ("a: 1e999", 1, "not a number"),
        ("a: " + "9" * 5000, 1, "too large"),
        ("a: 0x" + "f" * 5000, 1, "too large"),
        ('a: "\\ud800"', 1, "cannot be stored"),
        ('a: "x\\0y"', 1, "cannot be stored"),
        ("a: {<<: 5}", 1, "<< takes a mapping"),
        ("a: {<<: [1]}", 1, "<< takes a mapping"),
        ("[" * 51, 1, "nested deeper"),
        ("[" * 10_000, 1, "nested deeper"),
        ("a: 1\nb: \x07", 2, "control character '\\x07'"),
    ],
)
def test_each_violation_is_reported_with_its_line(text: str, line: int | None, words: str) -> None:
    """Each rule, with the line where it is broken."""
    problem = problems_of("f.yaml", text)[0]
    assert words in problem.message
    assert problem.line == line
    assert problem.file == "f.yaml"


def problems_of(file: str, text: str) -> list[Problem]:
    """Return what is wrong with a text as YAML, whether or not it leaves a value."""
    try:
        return read_source(file, text).problems
    except WorkflowError as error:
        return error.problems


def test_all_duplicates_are_reported_at_once() -> None:
    """One bad key hides neither the next one nor problems of the workflow's own keys."""
    problems = problems_of("f", "a: 1\na: 2\nb: {c: 1, c: 2}\n5: x\n")
    assert [problem.line for problem in problems] == [2, 3, 4]
    text = (
        "name: x\nsteps:\n  a: {nap: , retry: 3}\n  a:\n    nap:\n    retry: {delay: 5}\n  7: {}\n"
    )
    reported = [(problem.line, problem.key) for problem in check_text(text, "f", KINDS)]
    assert reported == [
        (3, "steps.a.retry"),
        (4, "steps.a"),
        (7, "steps"),
        (7, "steps.7"),
        (7, "steps.7"),
    ]


def test_the_first_of_two_duplicate_keys_counts() -> None:
    """The second value is refused, and its positions do not replace those of the first."""
    source = read_source("f", "a:\n  b: 1\na:\n  b: 2\n  b: 3\n")
    assert source.value == {"a": {"b": 1}}
    assert source.marks[("a", "b")][0] == 2
    assert [problem.line for problem in source.problems] == [3, 5]


def test_values_repeated_by_aliases_are_counted() -> None:
    """A few lines that stand for a billion values are refused before they are expanded."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(WorkflowError, match="counting what aliases repeat"):
        read_source("f", "\n".join(lines))


def test_a_file_that_is_no_text_or_too_large_is_refused() -> None:
    """Bytes that are not UTF-8 are reported with their line."""
    with pytest.raises(WorkflowError, match="f:2: not UTF-8 text: it holds the byte 0xff"):
        read_source("f", b"a: 1\nb: \xff")
    with pytest.raises(WorkflowError, match="larger than"):
        read_source("f", b"#" * (MAX_BYTES + 1))


def test_every_value_has_its_line_and_column() -> None:
    """Keys and values have positions; a value without one takes that of its container."""
    source = read_source("f", "a:\n  b: [x,\n      y]\n")
    assert source.problem(("a", "b"), "m").line == 2
    assert source.problem(("a", "b", 1), "m", at_value=True).line == 3
    assert source.problem(("a", "b", 1), "m").column == 7
    assert source.problem(("a", "missing"), "m").line == 1
    assert source.problem((), "m").line == 1


SAMPLES = [
    "a: 1\nb: [1, {c: d}, 'x', \"y\\n\"]\n",
    "a: |-\n  text\n   more\n\nb: >+\n  folded\n\n",
    "- a\n- - b\n  - c\n- ? x\n  : y\n",
    "{a: [1, 2,], 'b': {}}\n# comment\n",
    "a: &x\n  b: c\nd: *x\ne: !!str f\n",
    "--- \na\n...\n",
    "a:\n- b\n- c: d\n  e:\n  - f\n",
    "%YAML 1.1\n%TAG ! tag:example.com,2000:\n---\na: !x b\n",
    "a: b\r\nc: d\re: f\n",
    "key: value # comment\n'quoted key': plain text with spaces: no\n",
]


@pytest.mark.parametrize("text", SAMPLES)
def test_the_quick_scanner_yields_ruamels_own_events(text: str) -> None:
    """The faster loop changes nothing in what is read, nor where it stands, nor what is refused."""
    assert _outcome(events, text) == _outcome(YAML(typ="safe", pure=True).parse, text)


@PATIENT
@given(st.text(alphabet="ab1 \n-:,[]{}'\"#&*!|>?%@\t\r.", max_size=40))
def test_the_quick_scanner_agrees_on_any_text(text: str) -> None:
    """The same, for texts made of everything that means something in YAML."""
    assert _outcome(events, text) == _outcome(YAML(typ="safe", pure=True).parse, text)


def _outcome(parse: Any, text: str) -> list[str]:
    seen = []
    try:
        for event in parse(text):
            mark = event.start_mark
            parts = [getattr(event, name, None) for name in ("value", "anchor", "tag", "style")]
            seen.append(f"{type(event).__name__} {parts} {mark.line}:{mark.column}")
    except YAMLError as error:
        seen.append(type(error).__name__)
    except Exception:
        seen.append("refused")
    return seen


@PATIENT
@given(st.text(alphabet=st.characters(), max_size=80) | st.binary(max_size=80))
def test_any_content_is_read_or_refused(content: str | bytes) -> None:
    """No content makes reading raise anything but `WorkflowError`."""
    try:
        read_source("f", content)
    except WorkflowError as error:
        assert error.problems
