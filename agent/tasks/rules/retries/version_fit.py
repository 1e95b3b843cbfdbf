"""Whether the steps that a continued task keeps fit another version of its workflow, and which answers cover what it runs.

A retry or a fork on the newest version keeps the steps that succeeded, as on the same version. A kept step must be
in that version as it was: otherwise the new definition would have given another output. It is never
run again instead, since its effects have happened.

A step that has acted and did not succeed runs again under its own name and kind: only so does it find its calls on
record. Its next request is compared with the recorded one (`agent.steps.attempt.recorded_calls.replay`).
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from agent.core.ids import canonical_json
from agent.steps.spec.child_workflows import workflows_of
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.tasks.errors import RefusedError
from agent.workflows.graph import Fanout, Graph, Step
from agent.workflows.step_code import changed_code, differing

_COMPARED: Final = {
    "kind": "kind",
    "fanout": "foreach",
    "condition": "if",
    "run_on": "run_on",
    "output_schema": "output",
    "set_state": "set_state",
}
"""Properties that must be equal besides the configuration, by the key that people write."""
_COMPARED_TO_RUN: Final = {**_COMPARED, "executor": "executor", "approval": "approval"}
"""The same for a step that is to run."""
_ONLY_WAIT: Final = frozenset({"approval", "input", "wait"})
_MOST_SHOWN: Final = 60

Changes = Callable[[int, int], Mapping[int, str]]
"""Returns, for a version and a time of an answer, the steps that the answer may not cover any more; each with how it differs."""


def changes_to(
    tx: Connection, name: str, version: int, graph: Graph, *, is_about_to_run: bool
) -> Changes:
    """Return what compares earlier versions of a workflow with one, by the steps that can act.

    A step whose output leads to one that can act counts as well. For a task that is about to run, the code is
    compared as it is now, and children as they would be started now.
    """

    @cache
    def changed_since(earlier: int) -> dict[int, list[str]]:
        text, text_hash, _ = workflow_versions.graph_text(tx, name, earlier)
        before = graph if earlier == version else Graph.stored(text, text_hash)
        code = workflow_versions.code_of(tx, name, earlier)
        with_other_code = set(_other_code(code, workflow_versions.code_of(tx, name, version)))
        if is_about_to_run:
            _, _, path = workflow_versions.graph_text(tx, name, version)
            with_other_code |= set(changed_code(code, graph, path))
        return {
            index: list(_step_changes(before, step, with_other_code))
            for index, step in enumerate(graph.steps)
            if step.kind not in _ONLY_WAIT
        }

    def changes(earlier: int, answered_at: int) -> dict[int, str]:
        found = {}
        for index, why in changed_since(earlier).items():
            step = graph.steps[index]
            if is_about_to_run:
                why = [*why, *_newer_children(tx, step, answered_at, {name})]
            if why and any(_can_act(graph.steps[later]) for later in graph.downstream(index)):
                found[index] = f"step {step.name}: {'; '.join(why)}"
        return found

    return changes


def _step_changes(before: Graph, step: Step, with_other_code: Collection[str]) -> Iterator[str]:
    if step.name not in before.index_of:
        yield "it is new"
        return
    yield from differences(before.steps[before.index_of[step.name]], step, _COMPARED_TO_RUN)
    if step.name in with_other_code:
        yield "its code has changed"


def _other_code(code: str | None, other: str | None) -> list[str]:
    """Return the steps whose recorded code differs; none where one of the two is not known."""
    if code is None or other is None:
        return []
    return differing(json.loads(code), json.loads(other))


def _can_act(step: Step) -> bool:
    if step.kind == "http":
        return not {"get", "head"} & step.config.keys()
    if step.kind == "shell":
        return step.config.get("effect") != "none"
    return step.kind not in _ONLY_WAIT | {"llm"}


def _newer_children(tx: Connection, step: Step, since: int, seen: set[str]) -> Iterator[str]:
    """Say which workflows that a step may start have changed since an answer, at any depth."""
    names = [step.config.get("name")] if step.kind == "workflow" else workflows_of(step.config)
    for name in names:
        if not isinstance(name, str) or name in seen:
            continue
        newest = workflow_versions.newest_at(tx, name)
        if newest is None:
            continue
        seen.add(name)
        graph = Graph.stored(newest.graph, newest.hash)
        code = workflow_versions.code_of(tx, name, newest.number)
        if newest.created_at > since or changed_code(code, graph, newest.path):
            yield f"the workflow {name} has changed"
        for below in graph.steps:
            yield from _newer_children(tx, below, since, seen)


def differences(old: Step, new: Step, compared: Mapping[str, str] = _COMPARED) -> list[str]:
    """Return how a step that was kept differs in another version; empty where it fits."""
    changes = [
        f"{key}: {_shown(getattr(old, name))} is now {_shown(getattr(new, name))}"
        for name, key in compared.items()
        if getattr(old, name) != getattr(new, name)
    ]
    if old.kind == new.kind:
        # What `code` lists is compared by its content.
        before, after = ({**step.config, "code": None} for step in (old, new))
        changes += _config_differences(before, after, old.kind)
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

    def add_acted(
        self,
        acted: Iterable[tuple[str, str, bool]],
        kept: Collection[str],
        unknown: Collection[str],
    ) -> None:
        """Note steps (name, kind, whether an item) that have acted and would not find their calls.

        One of `unknown` has a call whose result is unknown: a definition that only reads would never come to it.
        """
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
            elif name in unknown and self._only_reads_now(name):
                self._found[name] = (
                    "whether its effect happened is unknown, and it only reads in that version:"
                    " `agent resolve` records what became of it"
                )

    def _only_reads_now(self, name: str) -> bool:
        before, after = (graph.steps[graph.index_of[name]] for graph in (self._old, self._new))
        return _can_act(before) and not _can_act(after)

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
