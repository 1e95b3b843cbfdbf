"""A person's commands on `state`: set a value, or delete it, whatever tasks do meanwhile.

Each command is one transaction under the lock of the name. A step that has read the value before keeps
what it read; a `set_state` that was computed from it is rendered again.
"""

from dataclasses import dataclass
from typing import Final

from agent.core.clock import Clock
from agent.core.plain_json import Json
from agent.core.redaction import everywhere
from agent.core.state_names import (
    MAX_VALUE_BYTES,
    StateKey,
    describe_scope,
    find_name_problem,
    workflow_of,
)
from agent.store.db.database import Database
from agent.store.db.json_values import NotPlainJsonError, encode
from agent.store.engine import workflow_versions
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.task_locks import LOCK_TIMEOUT_MS
from agent.tasks.rules.state_writes import LockedState, Writer

OPERATOR: Final = "the operator"


@dataclass(frozen=True, slots=True)
class StateResult:
    """The result of a command."""

    is_changed: bool
    message: str
    version: int


def set_value(
    database: Database,
    clock: Clock,
    key: StateKey,
    value: Json,
    *,
    by: str = OPERATOR,
    if_version: int | None = None,
) -> StateResult:
    """Set a value; with `if_version` only if it still has that version, 0 for one never written."""
    problem = find_name_problem(key[1])
    if problem is not None:
        raise RefusedError(problem)
    return _write(database, clock, key, _encode(key[1], value), by, if_version)


def delete_value(
    database: Database,
    clock: Clock,
    key: StateKey,
    *,
    by: str = OPERATOR,
    if_version: int | None = None,
) -> StateResult:
    """Delete a value; its versions count on if it is written again."""
    return _write(database, clock, key, None, by, if_version)


def _write(
    database: Database,
    clock: Clock,
    key: StateKey,
    text: str | None,
    by: str,
    if_version: int | None,
) -> StateResult:
    scope, name = key
    with database.connect("writer") as tx, tx.transaction():
        tx.lock_timeout(LOCK_TIMEOUT_MS)
        state = LockedState(tx, [key], clock.now(), is_waiting=True)
        now = state.values[key]
        if if_version is not None and now.version != if_version:
            raise RefusedError(
                f"{name} in {describe_scope(scope)} is at version {now.version}, not {if_version}"
            )
        workflow = workflow_of(scope)
        if now.version == 0 and workflow is not None and not workflow_versions.latest(tx, workflow):
            raise NotFoundError(
                f"no workflow {workflow!r} is on record: `agent workflows` lists them"
            )
        if text is None and not now.exists:
            raise NotFoundError(f"there is no {name} in {describe_scope(scope)}")
        refusal = None if text is None else state.refusal([key])
        if refusal is not None:
            raise RefusedError(refusal)
        version = state.write(key, text, Writer(by))
        state.flush()
    word = "deleted" if text is None else "set"
    return StateResult(
        True, f"{name} in {describe_scope(scope)} {word}, version {version}", version
    )


def _encode(name: str, value: Json) -> str:
    try:
        text = encode(everywhere.redact_value(value), name)
    except NotPlainJsonError as error:
        raise RefusedError(str(error)) from None
    size = len(text.encode())
    if size > MAX_VALUE_BYTES:
        raise RefusedError(f"{name} is {size:,} bytes as JSON, and {MAX_VALUE_BYTES:,} are allowed")
    return text
