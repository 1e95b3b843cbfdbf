"""Untrusted input is accepted or rejected with a message; never a traceback, never a hang."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.bad_input.spoiling import spoiled
from tests.bad_input.targets import TARGETS, good

EXAMPLES = {"workflow": 60, "delivery": 60}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.timeout(120)
def test_spoiled_input_is_refused_with_a_message(name: str) -> None:
    """Damaged good input, and noise: only the reader's own error is raised."""

    @settings(
        max_examples=EXAMPLES.get(name, 150),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(spoiled(good(name)) | st.binary(max_size=200) | st.text(max_size=60).map(str.encode))
    def check(text: bytes) -> None:
        TARGETS[name](text)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_good_input_is_good(name: str) -> None:
    """What bad input is made from is itself taken."""
    for text in good(name):
        TARGETS[name](text)
