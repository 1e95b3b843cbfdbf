"""Completions whose `set_state` must be rendered again, because a value that it reads has changed.

Each is rendered from what the ones before it will write, so all of a commit's conflicts fit into the
next commit, unless another process writes the same values in between. The steps do not run again.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from agent.core.state_names import MAX_CONFLICTS, StateKey, describe_scope
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, StepError, Succeeded
from agent.steps.types.state_values import StateChange, StateValue
from agent.tasks.commit.batch import Completion, TxResult
from agent.tasks.rules.state_writes import change_of
from agent.tasks.worker.outbox import Outbox


class StateConflicts:
    """Renders completions again and queues them for the next commit."""

    def __init__(self, outbox: Outbox, wake: Callable[[], None]) -> None:
        self._outbox = outbox
        self._wake = wake
        self._threads: set[asyncio.Task[None]] = set()

    def resolve(self, result: TxResult) -> None:
        """Render again the completions that a transaction could not settle."""
        changes = [change_of(completion.outcome) for completion in result.conflicts]
        if all(change is None or change.is_small for change in changes):
            self._queue_all(render_again(result))
            return
        # Their claims stay, and a shutdown waits for them as for attempts.
        thread = asyncio.create_task(self._resolve_in_thread(result))
        self._threads.add(thread)
        thread.add_done_callback(self._threads.discard)

    async def _resolve_in_thread(self, result: TxResult) -> None:
        self._queue_all(await asyncio.to_thread(render_again, result))

    def _queue_all(self, completions: Iterable[Completion]) -> None:
        for completion in completions:
            self._outbox.add_completion(completion)
        self._wake()


def render_again(result: TxResult) -> list[Completion]:
    """Return the conflicting completions of a transaction, rendered from current values."""
    values = dict(result.state)
    return [_rendered(completion, values) for completion in result.conflicts]


def _rendered(completion: Completion, values: dict[StateKey, StateValue]) -> Completion:
    """Render one completion, and put its values into `values`."""
    outcome = completion.outcome
    assert isinstance(outcome, Succeeded) and outcome.state is not None
    change = outcome.state
    if change.conflicts >= MAX_CONFLICTS:
        return replace(completion, outcome=Failed(_conflict(change), outcome.idempotency_key))
    try:
        writes = change.render(values)
    except DefiniteFailure as error:
        return replace(completion, outcome=Failed(error.error, outcome.idempotency_key))
    reads = {key: values[key].version for key in change.reads}
    for key, text in writes.items():
        values[key] = StateValue(values[key].version + 1, text)
    change = replace(change, writes=writes, reads=reads, conflicts=change.conflicts + 1)
    return replace(completion, outcome=replace(outcome, state=change))


def _conflict(change: StateChange) -> StepError:
    names = ", ".join(f"{name} in {describe_scope(scope)}" for scope, name in sorted(change.reads))
    text = (
        f"set_state was rendered {change.conflicts + 1} times, and each time another step had"
        f" changed what it reads ({names}). The step's own effect is on record; a retry writes it."
    )
    return StepError("state_conflict", "limit", text)
