import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
import tzlocal

from agent.core import local_zone
from agent.core.clock import SECOND
from agent.triggers import local_time


@pytest.fixture(autouse=True)
def _read_the_zone_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    local_zone.machine_zone.cache_clear()
    yield
    monkeypatch.undo()
    local_zone.machine_zone.cache_clear()
    tzlocal.reload_localzone()


@pytest.mark.parametrize("written", ["Europe/Berlin", ":Europe/Berlin"])
def test_the_zone_of_the_machine_is_named_by_tz(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`TZ` names a zone, with or without the colon of POSIX."""
    monkeypatch.setenv("TZ", written)
    assert local_zone.machine_zone() == ZoneInfo("Europe/Berlin")
    assert local_time.zone_name(local_zone.machine_zone()) == "Europe/Berlin"


def test_tz_may_hold_the_rules_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small systems have no zone files: their `TZ` says when the clock changes."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    zone = local_zone.machine_zone()
    assert datetime(2027, 7, 1, tzinfo=zone).utcoffset() == timedelta(hours=2)
    assert datetime(2027, 12, 1, tzinfo=zone).utcoffset() == timedelta(hours=1)


def test_a_nonsensical_tz_leaves_the_offset_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule runs by the offset that the system itself shows."""
    monkeypatch.setenv("TZ", "not a zone")
    zone = local_zone.machine_zone()
    assert isinstance(zone, timezone)
    assert datetime.now(zone).utcoffset() == datetime.now(UTC).astimezone().utcoffset()


def test_without_tz_the_configuration_of_the_machine_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The zone has the offset that the system's own clock has."""
    monkeypatch.delenv("TZ", raising=False)
    zone = local_zone.machine_zone()
    if "TZ" not in os.environ:
        assert datetime.now(zone).utcoffset() == datetime.now(UTC).astimezone().utcoffset()


def test_the_next_change_of_an_offset_is_found_exactly() -> None:
    """The clocks of Berlin change at 01:00 UTC on the last Sundays of March and October."""
    zone = ZoneInfo("Europe/Berlin")
    begin, end = (
        int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * SECOND for year in (2027, 2028)
    )
    first = local_time.next_offset_change(begin, end, zone)
    assert first == datetime(2027, 3, 28, 1, tzinfo=UTC).timestamp() * SECOND
    second = local_time.next_offset_change(first, end, zone)
    assert second == datetime(2027, 10, 31, 1, tzinfo=UTC).timestamp() * SECOND
    assert local_time.next_offset_change(second, end, zone) is None
