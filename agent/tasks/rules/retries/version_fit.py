"""Whether the steps that a continued task keeps fit another version of its workflow.

A retry or a fork on the newest version keeps the steps that succeeded, as on the same version. A kept step must be
in that version as it was: otherwise the new definition would have given another output. It is never
run again instead, since its effects have happened.

A step that has acted and did not succeed runs again under its own name and kind: only so does it find its calls on
record. Its next request is compared with the recorded one (`agent.steps.attempt.recorded_calls.replay`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from agent.core.ids import canonical_json
from agent.steps.types.outcome import Json
from agent.tasks.errors import RefusedError
from agent.workflows.graph import Fanout, Graph, Step

_COMPARED: Final = {
    "kind": "kind",
    "fanout": "foreach",
    "condition": "if",
    "run_on": "run_on",
    "output_schema": "output",
    "set_state": "set_state",
}
"""Properties that must be equal besides the configuration, by the key that people write."""
_MOST_SHOWN: Final = 60


def differences(old: Step, new: Step) -> list[str]:
    """Return how a step that was kept differs in another version; empty where it fits."""
    changes = [
        f"{key}: {_shown(getattr(old, name))} is now {_shown(getattr(new, name))}"
        for name, key in _COMPARED.items()
        if getattr(old, name) != getattr(new, name)
    ]
    if old.kind == new.kind:
        changes += _config_differences(old.config, new.config, old.kind)
    return changes


def _config_differences(old: Mapping[str, Json], new: Mapping[str, Json], path: str) -> list[str]:
    changes: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        before, after, name = old.get(key), new.get(key), f"{path}.{key}"
        if isinstance(before, dict) and isinstance(after, dict):
            changes += _config_differences(before, after, name)
        elif canonical_json(before) != canonical_json(after):
            changes.append(f"{name}: {_shown(before)} is now {_shown(after)}")
    return changes


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Fanout):
        value = value.model_dump(exclude_defaults=True)
    text = canonical_json(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


class Misfits:
    """Collects why a task cannot go on under another version, and refuses it."""

    def __init__(self, old: Graph, new: Graph, version: int) -> None:
        self._old = old
        self._new = new
        self._version = version
        self._found: dict[str, str] = {}

    def add_kept(self, before: Iterable[str], now: Collection[str]) -> None:
        """Note steps that were to be kept (`before`), and that the new version does not keep (`now`)."""
        lost = [name for name in before if name not in now]
        for name in lost:
            if name not in self._new.index_of:
                self._found[name] = "it succeeded, and that version has no such step"
                continue
            new = self._new.steps[self._new.index_of[name]]
            changed = differences(self._old.steps[self._old.index_of[name]], new)
            if changed:
                self._found[name] = f"it succeeded with another definition: {'; '.join(changed)}"
                continue
            missing = [parent for parent in new.depends_on if parent not in now]
            if not set(missing) & set(lost):
                names = ", ".join(missing)
                self._found[name] = f"it succeeded, and now depends on {names}, which has to run"

    def add_acted(self, acted: Iterable[tuple[str, str, bool]], kept: Collection[str]) -> None:
        """Note steps (name, kind, whether an item) that have acted and would not find their calls."""
        for name, kind, is_item in acted:
            if name in kept or name in self._found:
                continue
            if name not in self._new.index_of:
                self._found[name] = "it has acted, and that version has no such step"
                continue
            new = self._new.steps[self._new.index_of[name]]
            if new.kind != kind:
                self._found[name] = f"it has acted as {kind}, and is now of kind {new.kind}"
            elif is_item and new.fanout is None:
                self._found[name] = "its items have acted, and it has none in that version"
            elif not is_item and new.fanout is not None:
                self._found[name] = "it has acted, and is now a group of items"

    def refuse(self) -> None:
        """Raise `RefusedError` with every difference, if there is one."""
        if not self._found:
            return
        steps = "; ".join(f"step {name!r}: {why}" for name, why in self._found.items())
        first = next((n for n in self._found if n in self._new.index_of), None)
        hint = f" `fork --from {first} --latest` runs it again, with its effects." if first else ""
        raise RefusedError(
            f"the steps that are kept do not fit version {self._version} of {self._new.name}:"
            f" {steps}. Without --latest it goes on with its own version.{hint}"
        )
