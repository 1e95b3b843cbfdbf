"""What a provider sent is made into values that can be kept and sent back."""

import pytest
from freezegun import freeze_time

from agent.models import response_parsing
from agent.models.errors import retry_after


@pytest.mark.parametrize(
    "given",
    [["a", "a", "a"], ["a_2", "a", "a"], [None, "use_0", ""], ["x" * 500, "x" * 400]],
)
def test_ids_of_uses_differ(given: list[str | None]) -> None:
    """Whatever a provider calls them, each answer to a use can say which one it answers."""
    found = list(response_parsing.distinct_ids(given))
    assert len(set(found)) == len(given)
    assert all(found)


@freeze_time("2026-03-02T12:00:00Z")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "Mon, 02 Mar 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Mon, 02 Mar 2026 11:59:00 GMT"}, 0),
        (
            {
                "retry-after": "Mon, 02 Mar 2026 12:00:30 GMT",
                "date": "Mon, 02 Mar 2026 12:00:20 GMT",
            },
            10,
        ),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_retry_at_a_time_is_measured_by_the_servers_clock(
    headers: dict[str, str], seconds: float | None
) -> None:
    """By ours only if the server does not send its time; a time that has passed is now."""
    assert retry_after(headers) == seconds
