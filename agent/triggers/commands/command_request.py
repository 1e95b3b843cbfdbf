"""A command on a trigger as a person writes it: from the command line, the API or a chat.

Its times are texts: durations, or ISO times, which without an offset are local to the trigger's zone.
"""

from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

from agent.core.clock import SECOND
from agent.tasks.errors import RefusedError
from agent.triggers.commands.command_plan import TriggerResult
from agent.triggers.commands.trigger_commands import TriggerCommands
from agent.triggers.local_time import parse_time
from agent.workflows.durations import parse_duration

TriggerVerb = Literal["pause", "resume", "run", "skip", "backfill", "reset"]


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """One command with its arguments; those of other commands keep their defaults."""

    verb: TriggerVerb
    until: str | None = None
    """Of `pause`: a duration from now, or a time."""
    reason: str | None = None
    catch_up: bool = False
    first: str | None = None
    """Of `backfill`: where it begins, a time or a duration before now."""
    last: str | None = None
    """Of `backfill`: where it ends; now by default."""
    most: int | None = None
    dry_run: bool = False
    request_key: str | None = None
    """Of `run` and `skip`: a repeated request with the same key changes nothing again."""


def perform(
    commands: TriggerCommands, trigger_id: str, request: TriggerRequest, now: int
) -> TriggerResult:
    """Carry out a command on the trigger of an id."""
    if request.verb == "pause":
        until = None
        if request.until is not None:
            until = later(request.until, commands.zone(trigger_id), now)
        return commands.pause(trigger_id, until, request.reason)
    if request.verb == "resume":
        return commands.resume(trigger_id, catch_up=request.catch_up)
    if request.verb == "run":
        return commands.run(trigger_id, request_key=request.request_key)
    if request.verb == "backfill":
        zone = commands.zone(trigger_id)
        if request.first is None:
            raise RefusedError("a backfill needs the time from which it runs instants")
        return commands.backfill(
            trigger_id,
            _earlier(request.first, zone, now),
            now if request.last is None else _earlier(request.last, zone, now, is_end=True),
            most=request.most,
            dry_run=request.dry_run,
        )
    if request.verb == "skip":
        return commands.skip(trigger_id, request_key=request.request_key)
    return commands.reset(trigger_id)


def later(text: str, zone: tzinfo, now: int) -> int:
    """Return the instant of a time, or of a duration from now; raise `InvalidTimeError`."""
    seconds = _duration(text)
    return _time(text, zone) if seconds is None else now + round(seconds * SECOND)


def _earlier(text: str, zone: tzinfo, now: int, *, is_end: bool = False) -> int:
    seconds = _duration(text)
    return _time(text, zone, is_end=is_end) if seconds is None else now - round(seconds * SECOND)


def _duration(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _time(text: str, zone: tzinfo, *, is_end: bool = False) -> int:
    try:
        return parse_time(text.strip(), zone, is_end=is_end)
    except (ValueError, OverflowError):
        raise InvalidTimeError(
            f"{text!r} is neither a duration, such as 2h or 1d, nor a time, such as"
            " 2026-03-01 or 2026-03-01T09:00"
        ) from None


class InvalidTimeError(ValueError):
    """A time of a command cannot be read."""
