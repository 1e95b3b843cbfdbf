"""Questions that another version of a workflow asks differently: their answers are not carried over.

An answer holds for exactly the shown request. Both definitions are rendered with the outputs of the kept steps: where the
question is the same text, the answer stays, whatever changed in the file.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from agent.core.chat_origin import read_origin, with_origin
from agent.core.ids import canonical_json
from agent.steps.attempt import prepare
from agent.steps.types.attempt_input import AttemptInput, TaskView, Upstream
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection, StoreError
from agent.store.db.json_values import decode
from agent.store.engine import attempt_reads as read
from agent.store.engine import task_rows
from agent.tasks.rules.retries.kept_answers import ASKING_KINDS
from agent.workflows.graph import Graph, Step


class AskingTask(NamedTuple):
    """The task in which the questions were asked, and its version's graph."""

    id: str
    version: int
    graph: Graph


def changed_questions(
    tx: Connection, old: AskingTask, new: Graph, step_names: Iterable[str]
) -> frozenset[int]:
    """Return which of the named steps ask another question in a new version."""
    changed: set[int] = set()
    for name in step_names:
        index = new.index_of.get(name)
        if index is None or new.steps[index].kind not in ASKING_KINDS:
            continue
        before, after = old.graph.steps[old.graph.index_of[name]], new.steps[index]
        if before.kind != after.kind or before.fanout != after.fanout:
            continue
        if before.config != after.config and not _reads_the_same(tx, old, before, after):
            changed.add(index)
    return frozenset(changed)


def _reads_the_same(tx: Connection, old: AskingTask, before: Step, after: Step) -> bool:
    """Whether two definitions of a question are the same once rendered."""
    if before.fanout is not None or before.reads_state or after.reads_state or after.reads_now:
        # Their outputs of that time are not rendered again: the person is asked.
        return False
    if not {*after.depends_on, *after.refers_to} <= old.graph.index_of.keys():
        return False
    try:
        return canonical_json(_rendered(tx, old, before)) == canonical_json(
            _rendered(tx, old, after)
        )
    except (DefiniteFailure, StoreError):
        # A value that cannot be read now may have been another one.
        return False


def _rendered(tx: Connection, old: AskingTask, step: Step) -> dict[str, Json]:
    prepared = prepare.prepare_step(step)
    task_input, trigger, _ = task_rows.input_of(tx, old.id)
    origin = read_origin(task_rows.chat_origin_of(tx, old.id))
    task = TaskView(
        id=old.id,
        workflow=old.graph.name,
        version=old.version,
        input=json.loads(task_input),
        trigger=with_origin(json.loads(trigger) if trigger else None, origin),
        origin_id=old.id,
        created_at=0,
        deadline=None,
    )
    attempt_input = AttemptInput(
        task=task,
        graph=old.graph,
        step=step,
        step_id="",
        attempt=1,
        max_attempts=1,
        claim_token=1,
        is_group=False,
        upstream=_upstream(tx, old, step),
    )
    return prepare.rendered_config(attempt_input, prepared)


def _upstream(tx: Connection, old: AskingTask, step: Step) -> dict[str, Upstream]:
    names = dict.fromkeys((*step.depends_on, *step.refers_to))
    addresses = [(old.id, old.graph.index_of[name]) for name in names]
    upstream: dict[str, Upstream] = {}
    for _, task_id, index, status, output, error, count in read.ended_steps(tx, addresses):
        value = artifact_rows.take(tx, output)
        if count is not None and status == "succeeded":
            value = read.gathered(tx, task_id, index, artifact_rows.take)
        upstream[old.graph.steps[index].name] = Upstream(status, value, decode(error))
    return upstream
