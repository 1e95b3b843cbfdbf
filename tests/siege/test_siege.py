"""A short siege on both databases; `make siege` is the long one."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.siege.campaign import Size, besiege
from tests.siege.judging import violations
from tests.siege.planting import plant

SEED = 4


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and the time in nanoseconds")
@pytest.mark.timeout(600)
def test_a_short_siege_breaks_no_promise() -> None:
    """Real agents under a few faults keep every promise, as seen from outside."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        sieges = [
            pool.submit(besiege, "sqlite", 2, SEED, size=Size(tasks=2, workers=0)),
            pool.submit(besiege, "postgres", 3, SEED, size=Size(tasks=3, workers=1)),
        ]
        results = [siege.result() for siege in sieges]
    for result, faults in zip(results, (2, 3), strict=True):
        assert result.violations == [], (result.database, result.directory)
        assert sum(result.faults.values()) == faults
        assert len(result.record.tickets) >= 2
        # It would have noticed: an effect in its ledger twice is a violation.
        falsified = copy.deepcopy(result.record)
        effect = plant(falsified, "duplicate")
        assert any(sentence.startswith(effect) for sentence in violations(falsified))
