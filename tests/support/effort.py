"""How much of a campaign a test runs: the short form in `make test`, the full one in `make thorough`.

Both forms check the same behaviour with the same code. The full form has more seeds, faults or
examples, and takes more time than each change can wait for.
"""

import os
from typing import TypeVar

T = TypeVar("T")

IS_THOROUGH = os.environ.get("AGENT_TEST_EFFORT") == "thorough"


def short_or_full(short: T, full: T) -> T:
    """Return the value for this run of the tests."""
    return full if IS_THOROUGH else short
