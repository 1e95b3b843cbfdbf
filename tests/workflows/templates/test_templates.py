"""Templates: values with their types, clear errors, and nothing beyond the data."""

import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.workflows.templates.filters import COMPILERS_OWN, allowed_filters
from agent.workflows.templates.templates import TemplateError, evaluate, has_templates, render
from tests.support.hypothesis_profile import PATIENT

SCOPE: dict[str, Any] = {
    "steps": {
        "fetch": {
            "output": {"link": "x", "items": [1, 2], "count": 3, "nested": {"a": [{"b": "c"}]}},
            "status": "succeeded",
            "error": None,
        },
        "skipped": {"output": None, "status": "skipped", "error": None},
    },
    "inputs": {"name": "Ada", "evil": "{{ 1 + 1 }}"},
    "item": {"id": 7},
}


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("plain text", "plain text"),
        ("{ not one }", "{ not one }"),
        ("{{ steps.fetch.output.items }}", [1, 2]),
        ("{{ steps.fetch.output['items'][1] }}", 2),
        ("{{ steps.fetch.output.nested.a[0].b }}", "c"),
        ("  {{ item.id }}\n", 7),
        ("{{ item }}", {"id": 7}),
        ("{{ item.id + 1 }}", 8),
        ("{{ item.id > 3 }}", True),
        ("{{ none }}", None),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ {'a': item.id} }}", {"a": 7}),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ steps.fetch.output.items | map('string') }}", ["1", "2"]),
        ("{{ steps.fetch.output.items | sum }}", 3),
        ("{{ [{'n': 1}, {'n': 2}] | sum(attribute='n') }}", 3),
        ("{{ ['b', 'a'] | sort | join('-') }}", "a-b"),
        ("{{ '{\"a\": [1]}' | fromjson }}", {"a": [1]}),
        ("{{ item | tojson }}", '{"id": 7}'),
        ("{{ 'a b'.split() }}", ["a", "b"]),
        ("{{ inputs.get('other', 5) }}", 5),
        ("{{ inputs.missing | default('none') }}", "none"),
        ("{{ steps.fetch.output.missing is defined }}", False),
        ("no. {{ item.id }}", "no. 7"),
        ("{{ item }} {{ true }} {{ none }} {{ 1.5 }}", '{"id": 7} true null 1.5'),
        ("{% for i in [1, 2] %}{{ i }}{{ ',' if not loop.last else '' }}{% endfor %}", "1,2"),
        ("{% if item.id %}yes{% else %}no{% endif %}\n", "yes\n"),
        ("a{# a comment #}b", "ab"),
        ("{{ 'a' ~ 1 ~ [2] }}", "a1[2]"),
        ("{{ 'ab' * 3 }}", "ababab"),
        ("{{ 'ab' | replace('a', 'cc') }}", "ccb"),
        ("{{ 2 ** 10 }}", 1024),
        ("{{ 3.14159 | round(2) }}", 3.14),
    ],
)
def test_a_template_yields_its_value(template: str, value: Any) -> None:
    """One lone expression yields the value with its type; among text it is written as JSON."""
    result = render(template, SCOPE)
    assert result == value
    assert type(result) is type(value)


def test_templates_are_found_and_rendered_at_any_depth() -> None:
    """Values are rendered wherever they are, keys never, and what needs nothing stays as it is."""
    config = {"a": ["{{ item.id }}", {"{{ b }}": "x {{ inputs.name }}"}], "n": 1, "t": True}
    assert render(config, SCOPE) == {"a": [7, {"{{ b }}": "x Ada"}], "n": 1, "t": True}
    assert has_templates(config)
    assert not has_templates({"{{ key }}": ["{ x }", 1, None]})


def test_data_is_never_rendered_as_a_template() -> None:
    """What a template yields stays as it is, braces and all."""
    assert render("{{ inputs.evil }}", SCOPE) == "{{ 1 + 1 }}"
    assert render("say {{ inputs.evil }}", SCOPE) == "say {{ 1 + 1 }}"
    assert render(["{{ inputs }}"], SCOPE)[0]["evil"] == "{{ 1 + 1 }}"


def test_a_template_yields_a_copy() -> None:
    """Changing the result changes nothing upstream."""
    before = copy.deepcopy(SCOPE)
    render("{{ steps.fetch.output }}", SCOPE)["items"].append(9)
    render("{{ [steps.fetch.output] }}", SCOPE)[0]["items"].append(9)
    assert before == SCOPE


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            "{{ steps.fetch.output.lnk }}",
            ["steps.fetch.output has no 'lnk'", "did you mean 'link'?"],
        ),
        ("got {{ steps.fetch.output.lnk }}", ["steps.fetch.output has no 'lnk'", "'link'"]),
        ("{{ steps.fetch.output.zz.y }}", ["has no 'zz'", "it has link, items, count, nested"]),
        ("{{ steps.skipped.output.x }}", ["steps.skipped.output is null", "was skipped"]),
        ("{{ steps.other.output }}", ["no output of a step 'other'"]),
        ("{{ steps.fetch.output.items[5] }}", ["items", "2 items"]),
        ("{{ steps.fetch.output.link.x }}", ["is text"]),
        ("{{ nothing }}", ["there is no 'nothing' here", "steps, inputs, item"]),
        ("{{ inputs.missing + 1 }}", ["inputs has no 'missing'"]),
        ("{{ 1 / 0 }}", ["division by zero"]),
        ("{{ 'a' + 1 }}", ["cannot be computed"]),
        ("{{ 1 if false }}", ["no else"]),
        ("{{ 'x' | fromjson }}", ["not JSON"]),
        ("{{ 'x' | nofilter }}", ["there is no filter 'nofilter'"]),
        ("{{ x is notest }}", ["there is no test 'notest'"]),
        ("{{ 'a' | sum }}", ["sum adds numbers"]),
        ("{{ unclosed", ["cannot be read"]),
        ("{{ }}", ["cannot be read"]),
        ("{% endfor %}", ["cannot be read"]),
    ],
)
def test_an_error_says_what_is_wrong(template: str, words: list[str]) -> None:
    """What is missing is named in the words of the template, with what there is instead."""
    with pytest.raises(TemplateError) as caught:
        render(template, SCOPE)
    for word in words:
        assert word in str(caught.value)


def test_an_error_names_the_key_of_the_configuration() -> None:
    """In a configuration with many templates the one at fault is named."""
    with pytest.raises(TemplateError, match=r"^in with\.lines\[1\]: "):
        render({"with": {"lines": ["fine", "{{ nothing }}"]}}, SCOPE)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'] }}",
        "{{ inputs.__init__.__globals__ }}",
        "{{ inputs | attr('__class__') }}",
        "{{ [''] | map(attribute='__class__') | list }}",
        "{{ range.__class__ }}",
        "{{ range.__init__.__globals__ }}",
        "{{ self.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ namespace(a=1) }}",
        "{{ joiner() }}",
        "{{ dict(a=1) }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{0.__class__}'.format_map({}) }}",
        "{{ '%s' % 1 }}",
        "{{ '%s' | format(1) }}",
        "{{ inputs.update({'a': 1}) }}",
        "{{ inputs.pop('name') }}",
        "{{ steps.fetch.output['items'].append(1) }}",
        "{{ steps.fetch.output['items'].clear() }}",
        "{% set _ = steps.fetch.output['items'].append(1) %}",
        "{% import 'os' as os %}",
        "{% include '/etc/passwd' %}",
        "{% extends 'x' %}",
        "{% block b %}{% endblock %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% call x() %}{% endcall %}",
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% for i in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
        "{% for i in [1] %}{{ loop._iterator }}{% endfor %}",
        "{% set ns.x = 1 %}",
        "{% filter upper %}x{% endfilter %}",
        "{% autoescape true %}x{% endautoescape %}",
        "{{ (1).__class__ }}",
        "{{ (1).bit_length() }}",
        "{{ 1.5.hex() }}",
        "{{ 'a'.encode() }}",
        "{{ 'a'.translate({}) }}",
        "{{ x() }}",
        "{{ inputs() }}",
        "{{ inputs.name() }}",
        "{{ [1] | counted }}",
        "{{ [1] | sized }}",
        "{{ [1] | weighed }}",
        "{{ ['a'] | concat }}",
    ],
)
def test_a_template_reaches_nothing_but_its_data(template: str) -> None:
    """Python's insides, changing methods, and the statements that are not for computing."""
    before = copy.deepcopy(SCOPE)
    with pytest.raises(TemplateError):
        render(template, SCOPE)
    assert before == SCOPE


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 1000000000 }}",
        "{{ 1000000000 * 'a' }}",
        "{{ [1] * 1000000000 }}",
        "{{ 10 ** 1000000000 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ range(1000000000) }}",
        "{{ range(1000000000) | list }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% set a = 'aaaaaaaaaa' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
        "{% set a = 'aaaaaaaaaa' %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
        "{% set a = 'aa' %}" + "{% set a = a | replace('a', 'aaaaaaaa') %}" * 30,
        "{% set a = ['aaaaaaaa'] * 1000 %}" + "{% set a = [a | join(a | join)] * 9 %}" * 9,
        "{% set a = [1] %}" + "{% set a = a + a %}" * 60,
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
        "{% set a = {} %}" + "{% set a = {'x': a, 'y': a} %}" * 60 + "{{ a | tojson }}",
        "{% set a = [1] %}{% set b = [1] %}"
        + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60
        + "{{ a == b }}",
        "{{ ('f' * 4000000) | int(base=16) // (('e' * 2000000) | int(base=16)) }}",
        "{% set s = 'a' * 900000 %}{% for i in range(99) %}{{ s.upper() | length }}{% endfor %}",
        "{{ 1.5 | round(1000000000) }}",
        "{{ 1 | tojson(1000000000) }}",
        "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
        "{{ " + "-" * 30000 + "1 }}",
        "{{ 1" + " + 1" * 10000 + " }}",
        "{{ a" + ".a" * 20000 + " | upper }}",
        "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
        "{{ '" + "x" * 70000 + "' }}",
    ],
)
def test_a_template_ends(template: str) -> None:
    """Whatever a template asks for, it ends in an error before it takes much memory or time."""
    started = time.thread_time()
    with pytest.raises(TemplateError):
        render(template, SCOPE)
    assert time.thread_time() - started < 60


@pytest.mark.parametrize(
    "compared",
    [
        "([s] * 90000) == ([t] * 90000)",
        "s in ([t ~ 'b'] * 90000)",
        "s in ([{'x': t ~ 'b'}] * 9000) | map(attribute='x')",
        "([s] * 90000).count(t)",
        "([s, t] * 9000) | max | length",
        "([s, t] * 9000) | sort | length",
        "([s, t] * 9000) | unique | list | length",
        "([{'x': s}, {'x': t}] * 9000) | map(attribute='x') | min | length",
        "([s] * 90000) | select('equalto', t) | list | length",
        "s.strip(('b' * 300000) ~ 'a') | length",
    ],
)
def test_comparing_is_charged(compared: str) -> None:
    """One large text that a list holds many times takes no memory, and is endless to compare."""
    texts = "{% set s = 'a' * 3900000 %}{% set t = 'a' ~ ('a' * 3899999) %}"
    with pytest.raises(TemplateError, match="operations"):
        render(f"{texts}{{{{ {compared} }}}}", SCOPE)


def test_many_large_texts_in_one_configuration_are_bounded_together() -> None:
    """The bound is on one rendering, not on each of its templates."""
    with pytest.raises(TemplateError, match="together"):
        render([f"{{{{ 'a' * {3_000_000 + n} }}}}" for n in range(50)], SCOPE)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("steps.fetch.output.count > 2", True),
        ("not item.id", False),
        ("steps.fetch.output.items", [1, 2]),
        ("{'a': {'b': 1}}", {"a": {"b": 1}}),
        ("item.id if item.id > 5 else 0", 7),
        ("true", True),
    ],
)
def test_an_expression_stands_without_braces(expression: str, value: Any) -> None:
    """`if` and `foreach` compute expressions."""
    assert evaluate(expression, SCOPE) == value


@pytest.mark.parametrize(
    "expression",
    ["", " ", "{{ 1 }}", "1 }} {{ 2", "1 }} x", "1 2", "a ==", "%}", "# x", "{% if %}"],
)
def test_an_invalid_expression_is_refused(expression: str) -> None:
    """Braces, leftovers and an empty text."""
    with pytest.raises(TemplateError):
        evaluate(expression, SCOPE)


@PATIENT
@given(st.text(alphabet="{}%# \n'\"abst.[]()|+-*/~:,01", max_size=60))
def test_any_text_renders_or_is_refused(text: str) -> None:
    """No text makes rendering raise anything but `TemplateError`."""
    for compute in (render, evaluate):
        try:
            compute(text, SCOPE)
        except TemplateError as error:
            assert str(error)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@PATIENT
@given(json_values)
def test_any_value_passes_through_a_template_unchanged(value: Any) -> None:
    """A lone lookup yields exactly the data, by the fast way and by Jinja's."""
    scope = {"inputs": {"value": value}}
    assert render("{{ inputs.value }}", scope) == value
    assert render("{{ inputs['value'] }}", scope) == value
    assert evaluate("[inputs.value]", scope) == [value]


NO_DATA = ["range", "'x'.upper", "steps.fetch.output.items", "self", "[1]|map('upper')"]


@pytest.mark.parametrize("name", sorted(set(allowed_filters()) - COMPILERS_OWN))
@pytest.mark.parametrize("value", NO_DATA)
def test_no_filter_shows_where_an_object_lies_in_memory(name: str, value: str) -> None:
    """What is no data is refused, or read as the data that it yields: never written as Python does."""
    scope = {"steps": {"fetch": {"output": {"k": 1}}}}
    for text in (f"{{{{ {value}|{name} }}}}", f"is {{{{ {value}|{name} }}}}"):
        try:
            found = str(render(text, scope))
        except TemplateError as error:
            found = str(error)
        assert "0x" not in found.lower()
        assert not found.startswith("<")


@pytest.mark.parametrize(
    "text",
    [
        "{{ steps.fetch.output.l.index('x'.upper) }}",
        "{{ steps.fetch.output.l.count(range) }}",
        "{% for x in [1] %}{{ loop }}{% endfor %}",
        "{% for x in [1] %}{{ loop|string }}{% endfor %}",
        "{{ nothing|d(range) }}",
    ],
)
def test_a_result_that_is_no_data_is_refused(text: str) -> None:
    """Also where it would only be part of an error message."""
    with pytest.raises(TemplateError) as caught:
        render(text, {"steps": {"fetch": {"output": {"l": [1]}}}})
    assert "0x" not in str(caught.value)


def test_a_filters_generator_is_written_as_a_list() -> None:
    """Python would write the generator's address."""
    assert render("{{ [1, 2, 3]|select('odd')|string }}", {}) == "[1, 3]"
    assert render("{{ [1, 2]|reverse|string }}", {}) == "[2, 1]"
    with pytest.raises(TemplateError) as caught:
        render("{{ 'a b'.split(nothing) }}", {"inputs": {}})
    assert "a function" not in str(caught.value)
