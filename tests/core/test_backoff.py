"""Exponential backoff: the delays double up to a bound, and start again after a success."""

from agent.core.backoff import Backoff, delay_seconds


def test_delays_grow_by_the_factor_up_to_the_bound() -> None:
    """Each failure in a row multiplies the delay."""
    delays = [
        delay_seconds(failures, first_seconds=2, longest_seconds=30, factor=3)
        for failures in (1, 2, 3, 4, 5)
    ]
    assert delays == [2, 6, 18, 30, 30]


def test_a_delay_too_large_for_a_number_is_the_bound() -> None:
    """However many failures there were, the delay stays finite."""
    assert delay_seconds(1_000_000, first_seconds=0.1, longest_seconds=5) == 5


def test_a_bound_below_the_first_delay_holds() -> None:
    """The bound limits the first delay too."""
    assert Backoff(10, 0.5).next_seconds() == 0.5


def test_a_success_starts_again_with_the_first_delay() -> None:
    """`reset` forgets the failures before it."""
    backoff = Backoff(0.5, 10)
    assert [backoff.next_seconds() for _ in range(3)] == [0.5, 1.0, 2.0]
    assert backoff.failures == 3
    backoff.reset()
    assert (backoff.failures, backoff.next_seconds()) == (0, 0.5)
