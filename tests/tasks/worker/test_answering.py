"""Since when external workers are answered: starts, outages, stops and jumps of the clock."""

from agent.core.clock import SECOND
from agent.tasks.worker.answering import Answering
from tests.support.engine import HandClock

LEASE = 30.0


class SteppedClock(HandClock):
    """A clock whose two times the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self.jumped_us = 0

    def now(self) -> int:
        return 10**15 + int(self.passed * SECOND) + self.jumped_us

    def monotonic(self) -> float:
        return self.passed


def answered_seconds(answering: Answering) -> float:
    """Return for how long workers were answered."""
    time = answering.time()
    assert time is not None
    return (time.until - time.since) / SECOND


def test_nothing_is_answered_before_a_server_opens() -> None:
    """A process without a server lets no lease expire."""
    answering = Answering(SteppedClock(), LEASE)
    assert answering.time() is None
    answering.open()
    assert answered_seconds(answering) == 0
    answering.close()
    assert answering.time() is None


def test_time_counts_while_nothing_interrupts_it() -> None:
    """Each look extends the answered time."""
    clock = SteppedClock()
    answering = Answering(clock, LEASE)
    answering.open()
    for _ in range(10):
        clock.passed += 10
        answering.time()
    assert answered_seconds(answering) == 100


def test_an_outage_a_stop_and_a_jump_begin_it_again() -> None:
    """None of that time counts, nor what was before it."""
    clock = SteppedClock()
    answering = Answering(clock, LEASE)
    answering.open()
    clock.passed += 10
    answering.note_outage()
    assert answered_seconds(answering) == 0
    clock.passed += 10
    assert answered_seconds(answering) == 10
    clock.passed += LEASE + 1
    assert answered_seconds(answering) == 0, "the process was stopped"
    for jump in (3600, -3600):
        clock.passed += 10
        assert answered_seconds(answering) == 10
        clock.jumped_us += jump * SECOND
        assert answered_seconds(answering) == 0
