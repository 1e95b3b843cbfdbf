"""The time zone of the machine, and the one in which this process tells people and templates the date."""

import functools
import os
import warnings
from datetime import UTC, datetime, timedelta, tzinfo
from io import BytesIO
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_configured: list[tzinfo] = []
"""The zone of `[agent] timezone`, if the configuration has one."""


def configure(name: str) -> None:
    """Use a zone by its name from now on; an empty name is the machine's."""
    from zoneinfo import ZoneInfo

    _configured[:] = [ZoneInfo(name)] if name else []


def local_date(instant_us: int) -> str:
    """Return the date of an instant, as in 2026-03-01."""
    zone = _configured[0] if _configured else machine_zone()
    return (_EPOCH + timedelta(microseconds=instant_us)).astimezone(zone).date().isoformat()


@functools.cache
def machine_zone() -> tzinfo:
    """Return the time zone of this machine, read once: from `TZ`, else from its configuration."""
    import tzlocal

    with warnings.catch_warnings():
        # A machine without any configuration uses UTC, and so does this.
        warnings.simplefilter("ignore")
        try:
            return tzlocal.reload_localzone()
        except Exception:
            # `TZ` may hold the rules themselves (`CET-1CEST,M3.5.0,M10.5.0/3`), or nonsense.
            return _zone_of_rules(os.environ.get("TZ", "")) or _offset_of_now()


def _zone_of_rules(posix: str) -> tzinfo | None:
    """Return a zone from the rules of POSIX, which the last line of a zone file is made of."""
    from zoneinfo import ZoneInfo

    if not posix:
        return None
    header = b"TZif2" + bytes(15) + b"".join(n.to_bytes(4, "big") for n in (0, 0, 0, 0, 1, 4))
    body = bytes(6) + b"UTC\0"
    try:
        return ZoneInfo.from_file(
            BytesIO(header + body + header + body + b"\n" + posix.encode() + b"\n"), key="local"
        )
    except Exception:
        return None


def _offset_of_now() -> tzinfo:
    zone = datetime.now(UTC).astimezone().tzinfo
    assert zone is not None
    return zone
