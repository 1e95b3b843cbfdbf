"""A witness outside the engine: real effects, compared with the recorded ones."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from agent.core.state_machine import CallStatus
from agent.store.db.database import Connection
from agent.store.read.audit import task_reads as audit_reads
from agent.store.read.audit.rows import AuditRows, CallFacts
from agent.tasks.checker.violation import Finding, Violation


class ExternalWitness:
    """The records of a witness outside the engine.

    `effects` counts how often each effect happened, by the idempotency key of its call or by the key
    that the remote was given. It covers the calls of these `actions`, by default all, and never
    calls of models. `acknowledged` are the ids of tasks whose creation was acknowledged to a caller.
    """

    def __init__(
        self,
        effects: Mapping[str, int],
        acknowledged: Iterable[str] = (),
        actions: Container[str] | None = None,
    ) -> None:
        self._effects = Counter(effects)
        self._acknowledged = list(acknowledged)
        self._actions = actions
        self._unaccounted = set(self._effects)

    def check_calls(self, task: AuditRows) -> Iterator[Finding]:
        """Compare the calls of one task with the real effects."""
        titles = {step.id: step.title for step in task.steps}
        addresses: dict[tuple[str, int], list[CallFacts]] = {}
        for call in task.calls:
            addresses.setdefault((call.step_id, call.number), []).append(call)
        for (step_id, _), calls in addresses.items():
            title = titles.get(step_id, step_id)
            where = f"step {title}: {calls[-1].action}"
            happened = sum(self._effects[key] for key in self._account(calls))
            may_repeat = any(call.on_unknown == "retry" for call in calls)
            if happened > 1 and not may_repeat:
                yield Finding(f"{where} happened {happened} times", title)
            for call in calls:
                times = self._effects[call.idempotency_key]
                if call.status == CallStatus.FAILED and times:
                    yield Finding(
                        f"{where} is recorded as failed in attempt {call.attempt}, and happened",
                        title,
                    )
            is_done = any(call.status == CallStatus.SUCCEEDED for call in calls)
            if is_done and not happened and all(map(self._would_know, calls)):
                yield Finding(f"{where} is recorded as done, and never happened", title)

    def _would_know(self, call: CallFacts) -> bool:
        """Whether the witness sees this call if it happens; not if it was inherited."""
        action = call.action.partition("#")[0]
        is_counted = self._actions is None or action in self._actions
        return is_counted and call.attempt > 0 and call.model is None

    def _account(self, calls: list[CallFacts]) -> set[str]:
        keys = {call.idempotency_key for call in calls} | {call.remote_key for call in calls}
        self._unaccounted -= keys
        return keys

    def check_rest(self, connection: Connection) -> Iterator[Violation]:
        """Yield the effects and acknowledged tasks that no checked task accounts for."""
        for key in sorted(self._unaccounted):
            yield Violation(f"an effect happened under {key}, and its intent is not recorded")
        for task_id in audit_reads.missing_tasks(connection, self._acknowledged):
            yield Violation("it was acknowledged, and does not exist", task_id)
