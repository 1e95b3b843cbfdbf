"""The texts of notices about schedules and watchers, as plain text."""

from agent.channels.chat.message_texts import cut
from agent.core.escape import harmless
from agent.steps.types.outcome import Json
from agent.workflows.durations import format_duration

_MAX_REASON: int = 500


def text_of(event: str, data: dict[str, Json]) -> str:
    """Return the text of a notice."""
    name = data.get("trigger")
    reason = cut(str(data.get("reason") or data.get("error") or ""), _MAX_REASON)
    if event == "schedule.missed":
        text = _missed(name, data, reason)
    elif event == "schedule.paused":
        plural = "watchers" if data.get("kind") == "watch" else "schedules"
        text = f"✗ {name} is paused: {reason}. `agent {plural} resume {name}` resumes it"
    elif event == "watcher.failed" and data.get("is_partial"):
        text = f"! the watcher {name}: {reason}. `agent watchers show {name}` shows more"
    elif event == "watcher.failed":
        text = f"✗ the watcher {name} fails: {reason}. `agent watchers show {name}` shows more"
    elif event == "watcher.silent":
        length = format_duration(round(float(data.get("seconds") or 0)))
        text = f"✗ the watcher {name} has found nothing new for {length}"
    elif event == "watcher.reset":
        text = f"! the watcher {name} starts again from what is there now: {reason}"
    else:
        after = "found something new" if data.get("after") == "silent" else "works"
        text = f"✓ the watcher {name} {after} again"
    return harmless(text)


def _missed(name: Json, data: dict[str, Json], reason: str) -> str:
    count = int(data.get("count") or 1)
    runs = "1 run" if count == 1 else f"{count:,} runs"
    if data.get("is_exact") is False:
        runs = f"at least {runs}"
    first, last = data.get("from"), data.get("to")
    span = f"of {first}" if first == last or last is None else f"from {first} to {last}"
    return f"✗ the schedule {name} missed {runs} {span}: {reason}"
