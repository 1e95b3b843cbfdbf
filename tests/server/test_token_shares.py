"""Shares: one token leaves a quarter of what is bounded to others."""

from contextlib import ExitStack

import pytest

from agent.server.access.grants import TokenGrant
from agent.server.problems import Problem
from agent.server.token_shares import TokenShares


def _grant(name: str) -> TokenGrant:
    return TokenGrant(name, frozenset(), f"hash of {name}")


def test_one_token_leaves_a_quarter_to_others() -> None:
    """It is refused before the resource is full, others when it is; what is given back can be taken."""
    shares, greedy, other = TokenShares(8, "too many"), _grant("greedy"), _grant("other")
    with ExitStack() as taken:
        for _ in range(6):
            shares.check(greedy)
            taken.enter_context(shares.taken(greedy))
        with pytest.raises(Problem, match="too many"):
            shares.check(greedy)
        with shares.taken(other), shares.taken(other):
            assert shares.is_full(other)
        assert not shares.is_full(other)
    assert not shares.has_any


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_small_bound_can_be_used_up(most: int) -> None:
    """Where a quarter is less than one, one token may take everything."""
    shares, grant = TokenShares(most, "too many"), _grant("one")
    with ExitStack() as taken:
        for _ in range(most):
            shares.check(grant)
            taken.enter_context(shares.taken(grant))
        assert shares.is_full(grant)
