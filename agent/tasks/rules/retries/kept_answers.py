"""Answers of people that a continued task must not rely on: those given for something else.

A retry and a fork keep steps as they ended. A step that asked a person is different from other kept
steps: its answer permits the steps after it, and the person gave it for the input of that time. Whether a
changed input shows in the question does not matter. "OK to pay?" reads the same for any amount, so
the text of a question cannot decide which input its answer covers.

An answer does not cover another definition, other code or another executor of the steps that act on it, either
(`version_fit.changes_to`). That holds for a gate too, whose step has recorded no call: a gate of a step that has
acted covers that effect alone.

A kept step may itself come from an earlier task of the line, and a fork may keep an answer although
its input differs, as long as no step relies on it. So the input that counts is the one of the task
in which the step really ended, and so does its version.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent.core.ids import canonical_json
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.store.engine.lineage import Ancestor
from agent.tasks.rules.retries.version_fit import Changes
from agent.workflows.graph import Graph

ASKING_KINDS: Final = frozenset({"approval", "input"})
KINDS_WITH_CHILDREN: Final = frozenset({"workflow", "agent"})


class EndedStep(NamedTuple):
    """A step, or an item, that a person may have answered."""

    id: str
    ended_at: int | None


class StaleAnswer(NamedTuple):
    """An answer that does not cover all that may follow it."""

    not_covered: frozenset[int]
    """The steps that must not run on it."""
    changes: tuple[str, ...] = ()
    """How they differ from what was answered, if not by the input."""


def stale_answers(
    tx: Connection,
    task_id: str,
    graph: Graph,
    steps: Mapping[int, Sequence[EndedStep]],
    new_input: str,
    changes: Changes,
    above: Sequence[str] | None = None,
) -> dict[int, StaleAnswer]:
    """Return the steps of a task whose answers, or their children's, do not cover a new input or a changed step.

    `steps` are the rows at each index: the step and its items. A step that its `if` skipped
    counts as well: under the new input it may have to ask. With `above`, the changes of a task above, no answer covers
    what it did.
    """
    kinds = ASKING_KINDS | KINDS_WITH_CHILDREN
    asking = [
        index
        for index, step in enumerate(graph.steps)
        if (step.kind in kinds or step.approval is not None) and steps.get(index)
    ]
    if not asking:
        return {}
    line = lineage.predecessors(tx, task_id)
    canonical_input = _canonical(new_input)
    same_input = {each.id for each in line if _canonical(each.input) == canonical_input}
    versions = {each.id: each.version for each in line}
    origins = _origins(tx, line, (step.id for index in asking for step in steps[index]))
    with_children = [
        origins[step.id][0]
        for index in asking
        if graph.steps[index].kind in KINDS_WITH_CHILDREN
        for step in steps[index]
    ]
    has_questions = lineage.children_with_questions(tx, with_children) if with_children else {}
    with_calls: set[str] = set()
    if any(graph.steps[index].kind not in kinds for index in asking):
        with_calls = {step_id for each in line for step_id in lineage.steps_with_calls(tx, each.id)}
    stale: dict[int, StaleAnswer] = {}
    for index in asking:
        kind, downstream = graph.steps[index].kind, graph.downstream(index)
        ended = [(*origins[step.id], step.ended_at) for step in steps[index]]
        other_input = [step_id for step_id, task, _ in ended if task not in same_input]
        if other_input and _may_hold_answers(kind, other_input, has_questions):
            stale[index] = StaleAnswer(downstream)
            continue
        answered = _answered(kind, ended, has_questions, with_calls)
        changed: dict[int, str] = {}
        for task, at in answered.items():
            changed |= changes(versions[task], at)
        not_covered = frozenset(changed.keys() & downstream - {index})
        if answered and above is not None:
            stale[index] = StaleAnswer(downstream, tuple(above))
        elif not_covered:
            texts = tuple(changed[each] for each in sorted(not_covered))
            stale[index] = StaleAnswer(not_covered, texts)
    return stale


def _answered(
    kind: str,
    ended: Iterable[tuple[str, str | None, int | None]],
    has_questions: Mapping[str, bool],
    with_calls: Collection[str],
) -> dict[str, int]:
    """Return the tasks in which a person answered for what follows a step, each with the time of the first answer."""
    answered: dict[str, int] = {}
    for step_id, task, at in ended:
        if kind in KINDS_WITH_CHILDREN:
            is_answer = has_questions.get(step_id, False)
        else:
            is_answer = kind in ASKING_KINDS or step_id not in with_calls
        if is_answer and task is not None and at is not None:
            answered[task] = min(at, answered.get(task, at))
    return answered


def _may_hold_answers(kind: str, step_ids: list[str], has_questions: Mapping[str, bool]) -> bool:
    if kind not in KINDS_WITH_CHILDREN:
        return kind in ASKING_KINDS
    if any(has_questions.get(step_id, False) for step_id in step_ids):
        return True
    # A `workflow` step that started no child was skipped, or had no items: its child may ask now.
    return kind == "workflow" and not any(step_id in has_questions for step_id in step_ids)


def _origins(
    tx: Connection, line: Sequence[Ancestor], step_ids: Iterable[str]
) -> dict[str, tuple[str, str | None]]:
    """Follow kept steps back to where they ended.

    Return, by step id, the id of the step that really ended and its task's; None if that was pruned.
    """
    current = {step_id: step_id for step_id in step_ids}
    origins: dict[str, tuple[str, str | None]] = {}
    for task_id, _, before, _ in line:
        kept = lineage.kept_steps(tx, task_id) if before is not None else {}
        for step_id, here in list(current.items()):
            if here in kept:
                current[step_id] = kept[here]
            else:
                origins[step_id] = (current.pop(step_id), task_id)
        if not current:
            break
    return origins | {step_id: (last, None) for step_id, last in current.items()}


def _canonical(text: str) -> str:
    # Python takes 1, 1.0 and true for equal; as JSON they are three inputs.
    return canonical_json(json.loads(text))
