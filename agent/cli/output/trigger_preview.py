"""Schedules and watchers as `agent validate` prints them: the next instants, and remarks."""

from typing import Any

from agent.cli.output import terminal
from agent.core.clock import SECOND, to_iso
from agent.triggers.local_time import to_local, zone_name
from agent.triggers.schedules.schedule_remarks import Preview
from agent.workflows.durations import format_duration


def document(preview: Preview) -> dict[str, Any]:
    """Return a schedule or watcher as `--json` prints it."""
    shown: dict[str, Any] = {"trigger": preview.trigger_id, "kind": preview.kind}
    if preview.zone is not None:
        shown["timezone"] = zone_name(preview.zone)
        shown["next"] = [
            {
                "at": to_iso(instant),
                "local": to_local(instant, preview.zone).isoformat(),
                "in_seconds": (instant - preview.now_us) / SECOND,
            }
            for instant in preview.instants
        ]
    return {**shown, "remarks": preview.remarks}


def print_preview(preview: Preview) -> None:
    """Print a schedule with its next instants, or a watcher, and the remarks on it."""
    if preview.zone is not None:
        jitter = preview.jitter_seconds
        later = "" if jitter is None else f", each up to {format_duration(jitter)} later"
        terminal.print_line(f"  schedule {preview.label} ({zone_name(preview.zone)}{later})")
        for instant in preview.instants:
            local = to_local(instant, preview.zone)
            precision = "milliseconds" if instant % SECOND else "seconds"
            day, _, time = local.isoformat(timespec=precision).partition("T")
            away = terminal.duration((instant - preview.now_us) / SECOND)
            terminal.print_line(f"    {local:%a} {day} {time}  in {away}")
    else:
        terminal.print_line(f"  {preview.kind} {preview.label}")
    for remark in preview.remarks:
        terminal.print_line(f"    {remark}", "yellow")
