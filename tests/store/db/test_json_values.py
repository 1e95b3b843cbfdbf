"""Values that may be stored, and the message of a refusal."""

import json
import math
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.store.db import json_values
from agent.store.db.json_values import MAX_DEPTH, NotPlainJsonError, decode, encode

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
_plain = st.recursive(
    _scalars | _texts,
    lambda inner: st.lists(inner) | st.dictionaries(_texts, inner),
    max_leaves=20,
)


@pytest.fixture(params=["quick encoder", "standard library"], scope="module", autouse=True)
def _encoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both encoders accept and refuse the same values: commands do without the quick one."""
    before = list(json_values._quick)
    json_values.use_quick_encoder()
    if request.param == "standard library":
        json_values._quick.clear()
    yield
    json_values._quick[:] = before


def _nested(depth: int) -> Any:
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    return value


@given(_plain)
@example("\\u0000")
@example({"a\\u0000": ["\\\\u0000", "é\U0001f600", '"']})
@example([2**80, -(2**63), 1e308, 5e-324, -0.0])
@example([[]] * (MAX_DEPTH + 1))
def test_plain_values_are_read_back_unchanged(value: Any) -> None:
    """Every plain JSON value survives, as text that UTF-8 can encode and without an escaped NUL."""
    text = encode(value, "value")
    text.encode("utf-8")
    assert decode(text) == value
    assert json.dumps(decode(text)) == json.dumps(value)


_bad = st.sampled_from(
    ["\0", "a\0b", "\ud800", "x\udfff", math.nan, math.inf, -math.inf, b"bytes", object(), {1}, 1j]
)


@given(_plain, _bad, st.lists(st.sampled_from(["key", "other", 0]), max_size=6))
def test_a_value_that_is_no_json_is_refused_at_any_depth(
    neighbour: Any, bad: Any, places: list[str | int]
) -> None:
    """The message names its path."""
    value, path = bad, ""
    for place in reversed(places):
        value = {"good": neighbour, place: value} if isinstance(place, str) else [value, neighbour]
        path = (f".{place}" if isinstance(place, str) else "[0]") + path
    with pytest.raises(NotPlainJsonError) as caught:
        encode(value, "output")
    assert caught.value.path == "output" + path
    assert str(caught.value).startswith("output" + path)


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",), b"k"])
def test_a_key_that_is_no_string_is_refused(key: Any) -> None:
    """Keys are never converted to strings silently: `{1: …}` would come back as `{"1": …}`."""
    with pytest.raises(NotPlainJsonError, match=r"output\.inner: the key .* is not a string"):
        encode({"inner": {key: 1}}, "output")


def test_a_bad_key_is_named() -> None:
    """A NUL in a key is refused like one in a value."""
    with pytest.raises(NotPlainJsonError, match="NUL"):
        encode({"a\0": 1}, "input")


def test_nesting_is_bounded() -> None:
    """The deepest value that is stored can be read by both databases."""
    assert decode(encode(_nested(MAX_DEPTH), "v")) == _nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(NotPlainJsonError, match="nested"):
            encode(_nested(depth), "v")


def test_a_cyclic_value_is_refused() -> None:
    """The error names a path."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotPlainJsonError, match="nested"):
        encode(value, "v")


def test_an_integer_too_long_to_write_is_refused() -> None:
    """Python refuses to print it; the message names the value's path."""
    with pytest.raises(NotPlainJsonError, match=r"v\.n: an integer with too many digits"):
        encode({"n": 10**5000}, "v")


def test_tuples_and_string_enums_are_accepted() -> None:
    """They are stored as lists and strings without loss."""

    class Colour(StrEnum):
        RED = "red"

    assert encode({"a": (1, 2), "b": Colour.RED}, "v") == '{"a":[1,2],"b":"red"}'


def test_a_missing_value_reads_as_none() -> None:
    """A stored null does too."""
    assert decode(None) is None
    assert decode("null") is None
