"""Large values are cut to a size, and say so."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agent.steps.types.clipping import clipped

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=500),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=60,
)


def test_small_values_are_returned_as_they_are() -> None:
    """What fits is not copied."""
    value = {"a": [1, "x"]}
    assert clipped(value, 100) == (value, False)


def test_long_texts_and_lists_keep_their_beginnings() -> None:
    """The structure stays; what was cut says how much there was."""
    value = {"text": "ab" * 5000, "list": list(range(5000)), "small": True}
    cut, is_clipped = clipped(value, 1000)
    assert is_clipped
    assert cut["text"].startswith("abab") and cut["text"].endswith("(10,000 characters)")
    assert cut["list"][:3] == [0, 1, 2] and cut["list"][-1].endswith("more")
    assert cut["small"] is True


@given(_VALUES, st.integers(200, 2000))
def test_the_limit_holds(value: object, most: int) -> None:
    """Whatever its form, a clipped value fits, and only one that did not is clipped."""
    cut, is_clipped = clipped(value, most)
    assert is_clipped == (len(json.dumps(value, ensure_ascii=False)) > most)
    assert len(json.dumps(cut, ensure_ascii=False)) <= most * (2 if is_clipped else 1)
