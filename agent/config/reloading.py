"""Which keys a running agent takes over from a changed file, and which need a restart."""

from collections.abc import Iterable
from typing import Any, Final

from agent.config.keys import NAMED, leaves
from agent.config.settings import Settings

RELOADED: Final = (
    "approvals",
    "budget",
    "channels",
    "disk.critical_mb",
    "disk.low_mb",
    "engine.batch",
    "engine.inline_output_bytes",
    "engine.items_per_group",
    "engine.poll_seconds",
    "engine.retention_days",
    "engine.shutdown_seconds",
    "engine.slots",
    "engine.task_depth",
    "executors",
    "http",
    "llm",
    "log",
    "mail",
    "mcp",
    "models",
    "notify",
    "secrets",
    "shell",
    "steps",
    "workflows",
)
"""Sections and keys that a reload applies. All others need a restart, such as the address of the HTTP
API, or a lease, which all workers of a database must agree on."""


def is_reloaded(key: str) -> bool:
    """Whether a running agent takes over a change of this key."""
    return any(key == reloaded or key.startswith(f"{reloaded}.") for reloaded in RELOADED)


def split(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the keys that a reload applies, and those that need a restart."""
    reloaded: list[str] = []
    restarted: list[str] = []
    for key in keys:
        (reloaded if is_reloaded(key) else restarted).append(key)
    return reloaded, restarted


def changed_keys(old: Settings, new: Settings) -> list[str]:
    """Return the keys whose values differ; of sections with names of their own, the sections."""
    before, after = dict(leaves(old)), dict(leaves(new))
    missing = object()
    keys = [
        key for key in {**before, **after} if before.get(key, missing) != after.get(key, missing)
    ]
    return list(dict.fromkeys(_whole_section(key) for key in keys))


def merged(old: Settings, new: Settings) -> Settings:
    """Return the old settings with those new values that a reload can apply."""
    update: dict[str, Any] = {}
    for reloaded in RELOADED:
        section, _, key = reloaded.partition(".")
        if key:
            current = update.get(section, getattr(old, section))
            value = getattr(getattr(new, section), key)
            update[section] = current.model_copy(update={key: value})
        else:
            update[section] = getattr(new, section)
    return old.model_copy(update=update)


def _whole_section(key: str) -> str:
    path = key.split(".")
    return ".".join(path[:2]) if path[0] in NAMED else key
