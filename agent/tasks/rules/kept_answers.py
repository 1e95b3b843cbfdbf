"""Answers of people that a continued task must not rely on: those given under another input.

A retry and a fork keep steps as they ended. A step that asked a person is different from other kept
steps: its answer permits what follows, and the person gave it for the input of that time. Whether a
changed input shows in the question does not matter. "OK to pay?" reads the same for any amount, so
the text of a question cannot decide which input its answer covers.

A kept step may itself come from an earlier task of the line, and a fork may keep an answer although
its input differs, as long as no step relies on it. So the input that counts is the one of the task
in which the step really ended.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent.core.ids import canonical_json
from agent.store.db.database import Connection
from agent.store.engine import lineage
from agent.workflows.graph import Graph

ASKING_KINDS: Final = frozenset({"approval", "input"})
_KINDS_WITH_CHILDREN: Final = frozenset({"workflow", "agent"})

Rows = Mapping[int, list[dict[str, Any]]]


def given_under_another_input(
    tx: Connection, task_id: str, graph: Graph, rows: Rows, new_input: str
) -> frozenset[int]:
    """Return the steps of a task whose answers, or their children's, do not cover a new input.

    A step that its `if` skipped counts as well: under the new input it may have to ask.
    """
    kinds = ASKING_KINDS | _KINDS_WITH_CHILDREN
    suspects = [index for index, step in enumerate(graph.steps) if step.kind in kinds]
    if not suspects:
        return frozenset()
    line = lineage.predecessors(tx, task_id)
    wanted = _canonical(new_input)
    same = {each for each, given, _ in line if _canonical(given) == wanted}
    if len(same) == len(line) and line[-1][2] is None:
        return frozenset()
    origins = _origins(tx, line, (row["id"] for index in suspects for row in rows[index]))
    foreign = {
        index: [step_id for step_id, at in ended if at not in same]
        for index in suspects
        if (ended := [origins[row["id"]] for row in rows[index]])
    }
    parents = [
        step_id
        for index, steps in foreign.items()
        if graph.steps[index].kind in _KINDS_WITH_CHILDREN
        for step_id in steps
    ]
    has_questions = lineage.children_with_questions(tx, parents) if parents else {}
    return frozenset(
        index
        for index, steps in foreign.items()
        if steps and _may_hold_answers(graph.steps[index].kind, steps, has_questions)
    )


def _may_hold_answers(kind: str, steps: list[str], has_questions: Mapping[str, bool]) -> bool:
    if kind in ASKING_KINDS:
        return True
    if any(has_questions.get(step_id, False) for step_id in steps):
        return True
    # A `workflow` step that started no child was skipped, or had no items: its child may ask now.
    return kind == "workflow" and not any(step_id in has_questions for step_id in steps)


def _origins(
    tx: Connection, line: list[tuple[str, str, str | None]], step_ids: Iterable[str]
) -> dict[str, tuple[str, str | None]]:
    """Return the step as which each of these really ended, and its task; None if that was pruned."""
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
    # To Python 1, 1.0 and true are equal; as JSON they are three inputs.
    return canonical_json(json.loads(text))
