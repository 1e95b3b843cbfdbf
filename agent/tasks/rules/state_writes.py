"""Writing `state`: in the transaction that settles a step, or with a journal entry of its code.

All names that a transaction may read or write are locked at its start. What is locked is also known,
so every version is compared and counted in memory: of several steps in one commit, each sees what those
before it wrote. A transaction does not wait for a name that another one holds; parts that need it are carried.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from agent.core.state_names import MAX_EVER_NAMES, MAX_NAMES, StateKey, describe_scope
from agent.steps.types.outcome import Json, Outcome, Succeeded
from agent.steps.types.state_values import ABSENT, StateChange, StateOperation, StateValue
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import state_rows
from agent.store.engine.state_rows import StateRow
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


class Writer(NamedTuple):
    """The writer of a value: a step, a call of its code, or a person."""

    name: str
    task_id: str | None = None
    step_id: str | None = None
    call_id: str | None = None


class LockedState:
    """The names that a transaction has locked, with their values as it leaves them."""

    def __init__(
        self, tx: Connection, keys: Collection[StateKey], now: int, *, is_waiting: bool = False
    ) -> None:
        self._tx = tx
        self._now = now
        self._locked, rows = state_rows.lock(tx, keys, is_waiting=is_waiting)
        stored = {(scope, name): StateValue(version, value) for scope, name, version, value in rows}
        self.values = {key: stored.get(key, ABSENT) for key in self._locked}
        self._counts: dict[str, list[int]] = {}
        """How many values and names a scope has, once that matters."""
        self._written: list[StateRow] = []

    def holds(self, keys: Iterable[StateKey]) -> bool:
        """Whether all these names are locked by this transaction."""
        return self._locked.issuperset(keys)

    def has_moved(self, change: StateChange) -> bool:
        """Whether a value that a change was computed from has another version now."""
        return any(self.values[key].version != version for key, version in change.reads.items())

    def refusal(self, keys: Iterable[StateKey]) -> str | None:
        """Return why values cannot be written: their scope has too many."""
        absent = [key for key in keys if not self.values[key].exists]
        for scope in dict.fromkeys(scope for scope, _ in absent):
            if scope not in self._counts:
                self._counts[scope] = list(state_rows.count_names(self._tx, scope))
            values, names = self._counts[scope]
            mine = [key for key in absent if key[0] == scope]
            if values + len(mine) > MAX_NAMES:
                return (
                    f"{describe_scope(scope)} has {values:,} values, and {MAX_NAMES:,} are allowed:"
                    " delete some by `agent state delete`"
                )
            if names + sum(self.values[key].version == 0 for key in mine) > MAX_EVER_NAMES:
                return (
                    f"{describe_scope(scope)} has used {names:,} names, deleted ones included:"
                    " keep many things in one value, not each under a name of its own"
                )
        return None

    def write(self, key: StateKey, text: str | None, writer: Writer) -> int:
        """Write a value, or delete it; return its new version."""
        before = self.values[key]
        version = before.version + 1
        self.values[key] = StateValue(version, text)
        if key[0] in self._counts:
            counts = self._counts[key[0]]
            counts[0] += (text is not None) - before.exists
            counts[1] += before.version == 0
        row = StateRow(
            *key,
            version,
            text,
            writer.task_id,
            writer.step_id,
            writer.call_id,
            writer.name,
            self._now,
        )
        self._written.append(row)
        return version

    def settle(self, locked: LockedTask, step: StepRow, change: StateChange) -> None:
        """Write the values that a succeeded step sets."""
        writer = Writer(locked.title(step), locked.task.id, step.id)
        changes = [
            _changed(key, self.write(key, change.writes[key], writer))
            for key in sorted(change.writes)
        ]
        locked.emit("state.changed", step, {"changes": changes})

    def operate(
        self, locked: LockedTask, step: StepRow, operation: StateOperation, call_id: str
    ) -> bool:
        """Apply an operation of a step's code and set the answer; return False if it is refused."""
        key, operation.refusal = operation.key, None
        now = self.values[key]
        operation.answer = {"version": now.version}
        if operation.kind == "get":
            if now.exists:
                operation.answer["value"] = now.value
            return True
        if operation.kind == "compare_and_set" and not _is_expected(now, operation):
            operation.answer["written"] = False
            return True
        if operation.kind == "delete" and not now.exists:
            return True
        if operation.text is not None:
            operation.refusal = self.refusal([key])
            if operation.refusal is not None:
                return False
        writer = Writer(locked.title(step), locked.task.id, step.id, call_id)
        version = self.write(key, operation.text, writer)
        operation.answer = {"version": version, "written": True}
        locked.emit("state.changed", step, {"call": call_id, "changes": [_changed(key, version)]})
        return True

    def flush(self) -> None:
        """Send the collected writes to the database."""
        if self._written:
            state_rows.write(self._tx, self._written)
            self._written = []


def change_of(outcome: Outcome) -> StateChange | None:
    """Return the values that an outcome writes to `state`."""
    return outcome.state if isinstance(outcome, Succeeded) else None


def record_reads(tx: Connection, claimed: Iterable[tuple[LockedTask, StepRow]]) -> None:
    """Record the values of `state` that claimed steps read, at their first claim.

    Every later attempt, the approval gate and the replay of calls see exactly this. A step that
    inherited calls has inherited its reads, too: its first claim has the token 2.
    """
    rows = [
        (step.id, locked.graph.state_scope(name), name)
        for locked, step in claimed
        if locked.graph.steps[step.index].reads_state and step.claim_token <= 2
        for name in locked.graph.steps[step.index].reads_state
    ]
    if rows:
        state_rows.record_reads(tx, rows)


def _changed(key: StateKey, version: int) -> dict[str, Json]:
    scope, name = key
    return {"scope": scope, "name": name, "version": version}


def _is_expected(now: StateValue, operation: StateOperation) -> bool:
    if operation.expected_version is not None:
        return now.version == operation.expected_version
    if operation.expected_text is None:
        return not now.exists
    return now.exists and now.value == decode(operation.expected_text)
