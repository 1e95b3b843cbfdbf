"""The composition root."""

import gc
from collections.abc import Iterator

import pytest

from agent import bootstrap


@pytest.fixture
def usual_collector() -> Iterator[None]:
    """Restore the garbage collector for the other tests of this process."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("usual_collector")
def test_a_long_lived_process_collects_seldom_and_still_collects() -> None:
    """Loaded modules are excluded; later garbage in reference cycles is found."""
    bootstrap.collect_garbage_seldom()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] > 700
    circle: list[object] = []
    circle.append(circle)
    del circle
    assert gc.collect() >= 1
