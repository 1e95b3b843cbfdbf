"""The world's own account: what it saw happen, and what it was told, against what is on record."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

from agent.core.state_machine import CallStatus
from agent.store.db.database import Connection
from agent.store.read import audit_reads
from agent.store.read.audit_rows import AuditRows, CallFacts
from agent.tasks.checker.violation import Said, Violation


class ExternalWitness:
    """What a witness outside the engine wrote down, to be held against its database.

    `effects` says how often each effect happened, by the idempotency key of its call or by the key
    that the remote was given, for the calls of these `actions` (all, unless said; never those of
    models); `acknowledged` are the ids of tasks that somebody was promised.
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

    def calls(self, task: AuditRows) -> Iterator[Said]:
        """Hold one task's calls against what happened."""
        titles = {step.id: step.title for step in task.steps}
        places: dict[tuple[str, int], list[CallFacts]] = {}
        for call in task.calls:
            places.setdefault((call.step_id, call.number), []).append(call)
        for (step_id, _), calls in places.items():
            title = titles.get(step_id, step_id)
            where = f"step {title}: {calls[-1].action}"
            happened = sum(self._effects[key] for key in self._account(calls))
            may_repeat = any(call.on_unknown == "retry" for call in calls)
            if happened > 1 and not may_repeat:
                yield Said(f"{where} happened {happened} times", title)
            for call in calls:
                times = self._effects[call.idempotency_key]
                if call.status == CallStatus.FAILED and times:
                    yield Said(
                        f"{where} is on record as failed in attempt {call.attempt}, and happened",
                        title,
                    )
            is_done = any(call.status == CallStatus.SUCCEEDED for call in calls)
            if is_done and not happened and all(map(self._would_know, calls)):
                yield Said(f"{where} is on record as done, and never happened", title)

    def _would_know(self, call: CallFacts) -> bool:
        """Whether the witness has seen this call if it happened; not what another task made."""
        action = call.action.partition("#")[0]
        is_counted = self._actions is None or action in self._actions
        return is_counted and call.attempt > 0 and call.model is None

    def _account(self, calls: list[CallFacts]) -> set[str]:
        keys = {call.idempotency_key for call in calls} | {call.remote_key for call in calls}
        self._unaccounted -= keys
        return keys

    def rest(self, connection: Connection) -> Iterator[Violation]:
        """Tell what no task accounts for, once all have been seen."""
        for key in sorted(self._unaccounted):
            yield Violation(f"an effect happened under {key}, and no intent of it is on record")
        for task_id in audit_reads.missing_tasks(connection, self._acknowledged):
            yield Violation("it was acknowledged, and is not there", task_id)
