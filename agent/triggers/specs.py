"""Definitions of triggers: their identity, and the hashes that tell what an edit changed."""

from typing import Any, Final

from agent.core.ids import canonical_json, content_hash
from agent.core.quick_classes.quick_dataclasses import dataclass
from agent.workflows.compile.triggers import DURATIONS, TIMING_KEYS
from agent.workflows.compile.watch_sources import SOURCES
from agent.workflows.graph import Graph

Json = Any

SCHEDULE: Final = "schedule"
WATCH: Final = "watch"

_TIMING: Final = tuple(f"{key}_seconds" if key in DURATIONS else key for key in TIMING_KEYS)
_HASH_CHARS: Final = 8


@dataclass(frozen=True, slots=True)
class TriggerSpec:
    """One schedule or watcher as a workflow defines it."""

    id: str
    workflow: str
    name: str
    kind: str
    spec: dict[str, Json]
    spec_hash: str
    timing_hash: str
    """Of the keys that decide a schedule's instants, or of a watcher's source."""


def triggers_of(graph: Graph) -> list[TriggerSpec]:
    """Return the schedules and watchers that a workflow defines.

    Without an `id` a trigger is known by its timing or its source: an edit of that is a new trigger.
    """
    specs: list[TriggerSpec] = []
    for kind in (SCHEDULE, WATCH):
        names = _TIMING if kind == SCHEDULE else SOURCES
        for spec in graph.on.get(kind, []):
            timing_hash = _hash({name: spec[name] for name in names if name in spec})
            name = spec.get("id") or f"{kind}-{timing_hash[:_HASH_CHARS]}"
            specs.append(
                TriggerSpec(
                    trigger_id(graph.name, name),
                    graph.name,
                    name,
                    kind,
                    spec,
                    _hash(spec),
                    timing_hash,
                )
            )
    return specs


def trigger_id(workflow: str, name: str) -> str:
    """Return the id of a workflow's trigger."""
    return f"{workflow}:{name}"


def _hash(value: Json) -> str:
    return content_hash(canonical_json(value))
