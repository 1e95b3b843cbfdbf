"""A short siege; `make siege` is the long one."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.siege.campaign import Size, besiege
from tests.siege.judging import violations
from tests.siege.planting import plant
from tests.support.effort import short_or_full

SEED = 4
_ON_POSTGRES = ("postgres", 3, Size(tasks=3, workers=1))
_ON_SQLITE = ("sqlite", 2, Size(tasks=2, workers=0))
# In short form agents on SQLite are killed by `tests/crash/test_processes.py` alone.
SIEGES = short_or_full([_ON_POSTGRES], [_ON_SQLITE, _ON_POSTGRES])


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and the time in nanoseconds")
@pytest.mark.timeout(600)
def test_a_short_siege_breaks_no_promise() -> None:
    """Real agents under a few faults keep every promise, as seen from outside."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        sieges = [
            pool.submit(besiege, kind, faults, SEED, size=size) for kind, faults, size in SIEGES
        ]
        results = [siege.result() for siege in sieges]
    for result, (_, faults, _) in zip(results, SIEGES, strict=True):
        assert result.violations == [], (result.database, result.directory)
        assert sum(result.faults.values()) == faults
        assert len(result.record.tickets) >= 2
        # It would have noticed: an effect in its ledger twice is a violation.
        falsified = copy.deepcopy(result.record)
        effect = plant(falsified, "duplicate")
        assert any(sentence.startswith(effect) for sentence in violations(falsified))
