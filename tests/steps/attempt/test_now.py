"""`now` and `today` in templates: the step's first claim, for all its attempts."""

from datetime import UTC, datetime

import pytest

from agent.core import local_zone
from agent.core.clock import to_iso
from agent.steps.types.outcome import Succeeded
from tests.support.attempt import Trial, callable_name, run

LATE = int(datetime(2026, 3, 1, 23, 30, tzinfo=UTC).timestamp() * 1_000_000)


def _echo(value: object) -> object:
    return value


def test_templates_see_the_first_claim() -> None:
    """The instant is what the engine recorded, not the time of the attempt."""
    config = {"call": callable_name(_echo), "with": {"value": "{{ now }} {{ today }}"}}
    local_zone.configure("UTC")
    try:
        trial = Trial("python", config, options={"reads_now": True}, claim={"now": LATE})
        outcome = run(trial.attempt())
    finally:
        local_zone.configure("")
    assert isinstance(outcome, Succeeded)
    assert outcome.output == f"{to_iso(LATE)} 2026-03-01"


@pytest.mark.parametrize(("zone", "date"), [("UTC", "2026-03-01"), ("Europe/Berlin", "2026-03-02")])
def test_today_is_the_date_in_the_configured_zone(zone: str, date: str) -> None:
    """Half an hour before midnight UTC it is tomorrow further east."""
    local_zone.configure(zone)
    try:
        assert local_zone.local_date(LATE) == date
    finally:
        local_zone.configure("")
