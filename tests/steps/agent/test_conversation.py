"""Which entries of a conversation are summarised, and which the model gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.steps.agent.conversation import newest, split, tokens_of
from agent.steps.types.conversation import Entry


def entries(sizes: list[int], summary: int | None) -> list[Entry]:
    """Return exchanges of these sizes, with a summary before them if there is one."""
    said = [Entry(0, "summary", "s", summary, 0)] if summary is not None else []
    for number, size in enumerate(sizes):
        said.append(Entry(2 * number + 1, "user", "m", size))
        said.append(Entry(2 * number + 2, "assistant", "a", 1))
    return said


SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=12)
SUMMARY = st.none() | st.integers(0, 300)
BOUND = st.integers(200, 1000)


@given(SIZES, SUMMARY, BOUND)
def test_the_older_entries_are_split_off_in_whole_exchanges(
    sizes: list[int], summary: int | None, bound: int
) -> None:
    """Something is summarised, the order is kept, and what stays begins with a message."""
    whole = entries(sizes, summary)
    older, rest = split(whole, bound)
    assert older + rest == whole
    assert older[-1].role == "assistant"
    assert not rest or rest[0].role == "user"
    # At once at most twice the bound, unless the first exchange alone is more.
    first = 3 if summary is not None else 2
    assert tokens_of(older) <= 2 * bound or len(older) == first


@given(SIZES, SUMMARY, BOUND)
def test_the_model_gets_the_summary_and_the_newest_exchanges_that_fit(
    sizes: list[int], summary: int | None, bound: int
) -> None:
    """Whole exchanges are left out, the oldest first, and no more than needed."""
    whole = entries(sizes, summary)
    shown = newest(whole, bound)
    kept = [entry for entry in shown if entry.role != "summary"]
    assert kept == whole[len(whole) - len(kept) :] and len(kept) % 2 == 0
    assert (shown[:1] == whole[:1]) or summary is None
    assert tokens_of(shown) <= bound or not kept
    if len(shown) < len(whole):
        more = whole[len(whole) - len(kept) - 2 :] if kept else whole[-2:]
        assert tokens_of(shown[: len(shown) - len(kept)] + more) > bound


@pytest.mark.parametrize("bound", [200, 1000])
def test_what_fits_stays(bound: int) -> None:
    """A conversation within the bound is passed on as it is, also an empty one."""
    assert newest([], bound) == []
    whole = entries([10, 20], 30)
    assert newest(whole, bound) == whole
