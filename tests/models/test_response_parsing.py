"""What a provider sent is made into values that can be kept and sent back."""

import pytest

from agent.models import response_parsing


@pytest.mark.parametrize(
    "given",
    [["a", "a", "a"], ["a_2", "a", "a"], [None, "use_0", ""], ["x" * 500, "x" * 400]],
)
def test_ids_of_uses_differ(given: list[str | None]) -> None:
    """Whatever a provider calls them, each answer to a use can say which one it answers."""
    found = list(response_parsing.distinct_ids(given))
    assert len(set(found)) == len(given)
    assert all(found)
