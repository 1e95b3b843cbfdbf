"""Which value is watched in a page or a JSON document; pure functions of the document's bytes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.store.db.json_values import encode
from agent.triggers.watchers.page_document import parse
from agent.triggers.watchers.parser_child import UnreadableError
from agent.triggers.watchers.parser_child import parse as parse_any

NONE = {"select": None, "attribute": None, "jmespath": None, "pattern": None}
PAGE = """<!DOCTYPE html><html><head><title>Shop</title><style>p { color: red }</style>
<script nonce="{nonce}">var price = "{nonce}";</script></head><body class="{nonce}">
<p id="price">Price: <b data-cents="{cents}">{price}</b></p><p>In   stock</p></body></html>"""


def found(body: bytes | str, content_type: str = "text/html", **parts: str) -> dict[str, Any]:
    """Parse a document in this process."""
    data = body.encode() if isinstance(body, str) else body
    return parse(data, {**NONE, "content_type": content_type, **parts})


def value(body: bytes | str, content_type: str = "text/html", **parts: str) -> Any:
    """Return the watched value of a document."""
    return found(body, content_type, **parts)["value"]


def page(price: str = "5 €", nonce: str = "abc", cents: str = "500") -> str:
    """Return the page of a shop."""
    texts = {"{price}": price, "{nonce}": nonce, "{cents}": cents}
    text = PAGE
    for name, replacement in texts.items():
        text = text.replace(name, replacement)
    return text


def test_of_a_whole_page_only_the_text_counts() -> None:
    """A nonce in the markup is no change; a word is one."""
    assert value(page()) == "Shop\nPrice:\n5 €\nIn stock"
    assert found(page(nonce="one"))["hash"] == found(page(nonce="two"))["hash"]
    assert found(page(price="5 €"))["hash"] != found(page(price="6 €"))["hash"]
    assert value(page(), "") == value(page())


def test_a_page_that_only_scripts_fill_is_an_error() -> None:
    """It would never change."""
    with pytest.raises(UnreadableError, match="the page has no text without its scripts"):
        found("<html><body><div id=app></div><script>start()</script></body></html>")


def test_select_takes_the_text_of_the_elements() -> None:
    """A line each, with its spaces collapsed; scripts in them do not count."""
    assert value(page(), select="#price") == "Price: 5 €"
    assert value(page(), select="p") == "Price: 5 €\nIn stock"
    assert value("<p>a<script>b</script></p>", select="p") == "a"
    assert value("<div><script>b</script></div>", select="div, script") == "\nb"


def test_attribute_takes_an_attribute_of_the_elements() -> None:
    """Elements without it do not count."""
    assert value(page(), select="b", attribute="data-cents") == "500"
    assert value("<a href=1></a><a></a><a href></a>", select="a", attribute="href") == "1\n"
    with pytest.raises(UnreadableError, match="has the attribute 'href'"):
        found(page(), select="b", attribute="href")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"select": "h1.none"}, "nothing on the page matches select: 'h1.none'"),
        ({"select": "p["}, "select: 'p\\[' is not a CSS selector"),
        ({"pattern": "no such"}, "nothing on the page matches pattern: 'no such'"),
        ({"pattern": "("}, "is not a regular expression"),
        ({"select": "p", "pattern": "none"}, "nothing on the page matches pattern"),
        ({"jmespath": "a"}, "the document is not JSON"),
    ],
)
def test_no_match_on_a_page_is_an_error(parts: dict[str, str], message: str) -> None:
    """A page that was rebuilt must not look like one that never changes."""
    with pytest.raises(UnreadableError, match=message):
        found(page(), **parts)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("c", "nothing in the document matches jmespath: 'c'"),
        ("n", "nothing in the document matches"),
        ("a[", "jmespath: 'a\\['"),
        ("abs(s)", "jmespath: 'abs\\(s\\)'"),
    ],
)
def test_no_match_in_json_is_an_error(expression: str, message: str) -> None:
    """Null counts as none: JMESPath does not tell them apart."""
    with pytest.raises(UnreadableError, match=message):
        found('{"a": [1], "n": null, "s": "x"}', jmespath=expression)


@pytest.mark.parametrize(
    ("expression", "result"),
    [("a[0].b", 1), ("a[].b", [1, 2]), ("t", True), ("o", {"k": 1.5}), ("a[?b > `9`]", [])],
)
def test_jmespath_keeps_the_type(expression: str, result: Any) -> None:
    """An empty list is a value too: what it watches for may come."""
    document = '{"a": [{"b": 1}, {"b": 2}], "t": true, "o": {"k": 1.5}}'
    assert value(document, jmespath=expression) == result


def test_a_whole_json_document_keeps_its_type() -> None:
    """The order of its keys and its spaces are no change."""
    assert value('{"a": [1]}', "application/json; charset=utf-8") == {"a": [1]}
    one = found('{"a": 1, "b": 2}', "application/problem+json")
    assert one["hash"] == found('{"b":2,"a":1}', "application/problem+json")["hash"]
    assert value("not json", "application/json") == "not json"


def test_pattern_takes_its_first_group_or_the_whole_match() -> None:
    """On a page alone it searches the source, where values of scripts are."""
    assert value(page(nonce="x7"), pattern=r'price = "(\w+)"') == "x7"
    assert value(page(nonce="x7"), pattern=r"x\d") == "x7"
    assert value(page(nonce="x7"), pattern=r"(none)?x\d") == "x7"
    assert value(page(), select="#price", pattern=r"(\d+) €") == "5"
    assert value('{"a": {"b": [1, 2]}}', jmespath="a", pattern=r"\[(.*)\]") == "1, 2"


def test_other_documents_are_compared_as_they_are() -> None:
    """Text as text; what is not text by its hash and size."""
    assert value("a\r\nb\n", "text/plain") == "a\nb"
    assert value("plain", "application/octet-stream") == "plain"
    png = value(b"\x89PNG\0\xff", "image/png")
    assert (png["bytes"], len(png["sha256"])) == (6, 64)
    assert value(b"", "text/plain") == ""


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("Zürich".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        ("Zürich".encode("latin-1"), "text/plain"),
        ("Zürich".encode(), "text/plain; charset=no-such-charset"),
        ("Zürich".encode(), "text/plain; charset=rot13"),
        ("Zürich".encode(), 'text/plain; charset="utf-8"'),
        ("\ufeffZürich".encode("utf-16-le"), "text/plain"),
        ("\ufeffZürich".encode(), "text/plain; charset=latin-1"),
        ("<meta charset='iso-8859-1'>Zürich".encode("latin-1"), "text/html"),
        ("<meta charset='utf-16'>Zürich".encode(), "text/html"),
    ],
)
def test_encodings_are_found(body: bytes, content_type: str) -> None:
    """By mark, header or `meta` element, or declared wrong."""
    assert value(body, content_type) == "Zürich"


def test_a_charset_in_the_text_is_no_declaration() -> None:
    """Only `meta` elements and XML declarations count."""
    assert value('{"a": "charset=latin-1, Zürich"}', jmespath="a") == "charset=latin-1, Zürich"
    xml = "<?xml version='1.0' encoding='latin-1'?><a>Zürich</a>".encode("latin-1")
    assert "Zürich" in value(xml, "application/xml")


def test_a_long_value_is_cut_but_compared_whole() -> None:
    """A change behind the cut is a change."""
    one, other = "x" * 70_000, "x" * 69_999 + "y"
    first, second = found(one, "text/plain"), found(other, "text/plain")
    assert first["value"] == second["value"] == "x" * 65_534
    assert first["is_cut"]
    assert first["hash"] != second["hash"]
    listed = found(json.dumps(["x"] * 70_000), jmespath="@")
    assert listed["is_cut"]
    assert listed["value"].startswith('["x", "x"')
    quoted = value('"' * 70_000, "text/plain")
    assert 20_000 < len(json.dumps(quoted)) <= 65_536


@pytest.mark.parametrize(
    "document",
    [
        "[1e999]",
        "[NaN]",
        "[" * 100_000,
        "[" + "9" * 5000 + "]",
        '"' + "\\ud800" * 3,
        '{"a": Infinity}',
    ],
)
def test_json_that_cannot_be_stored_is_a_problem(document: str) -> None:
    """It is the document's fault, and never a failure of the transaction that records it."""
    options = {**NONE, "content_type": "application/json", "jmespath": "@"}
    assert "problem" in parse_any("page_document", document.encode(), options)


def test_nul_and_lone_surrogates_are_replaced() -> None:
    """Databases store neither."""
    assert value('{"a\\u0000": "\\ud800"}', jmespath="@") == {"a\ufffd": "?"}
    assert value(b"<p>a\0b</p>", select="p") == "a\ufffdb"


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
    st.sampled_from(["text/html", "application/json", "text/xml; charset=utf-7", "", "a/b"])
    | st.text(max_size=30),
    st.sampled_from([{}, {"select": "*"}, {"pattern": "."}, {"jmespath": "@"}]),
)
def test_any_bytes_are_read_or_refused(
    body: bytes, content_type: str, parts: dict[str, str]
) -> None:
    """The parser raises nothing else, and what it returns can be stored."""
    options = {**NONE, "content_type": content_type, **parts}
    answer = parse_any("page_document", body, options)
    if "problem" in answer:
        assert "cannot be parsed" not in answer["problem"]
    else:
        encode(answer["value"], "value")
