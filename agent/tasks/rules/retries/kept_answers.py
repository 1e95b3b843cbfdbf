"""Answers of people that a continued task must not rely on: those given under another input.

A retry and a fork keep steps as they ended. A step that asked a person is different from other kept
steps: its answer permits the steps after it, and the person gave it for the input of that time. Whether a
changed input shows in the question does not matter. "OK to pay?" reads the same for any amount, so
the text of a question cannot decide which input its answer covers.

A kept step may itself come from an earlier task of the line, and a fork may keep an answer although
its input differs, as long as no step relies on it. So the input that counts is the one of the task
in which the step really ended.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agent.core.ids import canonical_json
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.workflows.graph import Graph

ASKING_KINDS: Final = frozenset({"approval", "input"})
_KINDS_WITH_CHILDREN: Final = frozenset({"workflow", "agent"})


def stale_answers(
    tx: Connection,
    task_id: str,
    graph: Graph,
    step_ids: Mapping[int, Sequence[str]],
    new_input: str,
) -> frozenset[int]:
    """Return the steps of a task whose answers, or their children's, do not cover a new input.

    `step_ids` names the rows at each index: the step and its items. A step that its `if` skipped
    counts as well: under the new input it may have to ask.
    """
    kinds = ASKING_KINDS | _KINDS_WITH_CHILDREN
    asking = [index for index, step in enumerate(graph.steps) if step.kind in kinds]
    if not asking:
        return frozenset()
    line = lineage.predecessors(tx, task_id)
    canonical_input = _canonical(new_input)
    same_input = {
        ancestor_id for ancestor_id, text, _ in line if _canonical(text) == canonical_input
    }
    is_line_complete = line[-1][2] is None
    if len(same_input) == len(line) and is_line_complete:
        return frozenset()
    origins = _origins(tx, line, (step_id for index in asking for step_id in step_ids[index]))
    other_input: dict[int, list[str]] = {}
    for index in asking:
        ended = [origins[step_id] for step_id in step_ids[index]]
        if stale := [step_id for step_id, ended_in in ended if ended_in not in same_input]:
            other_input[index] = stale
    parents = [
        step_id
        for index, stale in other_input.items()
        if graph.steps[index].kind in _KINDS_WITH_CHILDREN
        for step_id in stale
    ]
    has_questions = lineage.children_with_questions(tx, parents) if parents else {}
    return frozenset(
        index
        for index, stale in other_input.items()
        if _may_hold_answers(graph.steps[index].kind, stale, has_questions)
    )


def _may_hold_answers(kind: str, step_ids: list[str], has_questions: Mapping[str, bool]) -> bool:
    if kind in ASKING_KINDS:
        return True
    if any(has_questions.get(step_id, False) for step_id in step_ids):
        return True
    # A `workflow` step that started no child was skipped, or had no items: its child may ask now.
    return kind == "workflow" and not any(step_id in has_questions for step_id in step_ids)


def _origins(
    tx: Connection, line: list[tuple[str, str, str | None]], step_ids: Iterable[str]
) -> dict[str, tuple[str, str | None]]:
    """Follow kept steps back to where they ended.

    Return, by step id, the id of the step that really ended and its task's; None if that was pruned.
    """
    current = {step_id: step_id for step_id in step_ids}
    origins: dict[str, tuple[str, str | None]] = {}
    for task_id, _, before in line:
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
