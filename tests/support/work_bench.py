"""External workers without HTTP: their calls as parts of commits that the test makes."""

import json
from typing import Any

from agent.core.clock import SECOND
from agent.core.ids import idempotency_key, new_id, remote_key, request_hash
from agent.steps.types.call_records import Intent
from agent.steps.types.outcome import Waiting, WorkOffer
from agent.tasks.commit.batch import Batch, TxResult
from agent.tasks.rules.claiming import AnsweredTime
from agent.tasks.rules.external_work.work_parts import (
    ClaimResult,
    LeaseCall,
    LeasedWork,
    LeaseResult,
    WorkClaim,
    WorkPart,
    parse_lease,
)
from agent.workflows.graph import Step
from tests.support.engine import NOW, Hand

QUEUE = "tested"


def worker_step(name: str = "w", **options: Any) -> Step:
    """Return a step for external workers."""
    config = {"queue": options.pop("queue", QUEUE), **options.pop("config", {})}
    after = options.pop("after", [])
    retry = options.pop("retry", NOW)
    return Step(name=name, kind="worker", config=config, depends_on=after, retry=retry, **options)


class WorkBench:
    """Drives a `Hand` with the calls of external workers."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand

    def offer(
        self,
        name: str = "w",
        task_id: str | None = None,
        *,
        is_effect: bool = False,
        queue: str = QUEUE,
        timeout: float | None = None,
        given: Any = None,
    ) -> None:
        """Let the attempt of a step offer its work, as its kind would."""
        attempt = self.hand.claimed(name, task_id)
        intent = None
        if is_effect:
            body = {"queue": queue, "with": given}
            action, digest = f"worker.{queue}#1", request_hash(body)
            intent = Intent(
                new_id(),
                1,
                action,
                None,
                digest,
                idempotency_key(attempt.task.id, attempt.step_id, attempt.attempt, action, digest),
                remote_key(attempt.task.origin_id, name, action, digest, 0),
                "ask",
                0,
                0,
            )
        offered = WorkOffer(
            queue, json.dumps(given), 60.0, 300.0, timeout, intent, is_effect=is_effect
        )
        self.hand.settle({name: Waiting(offered)}, task_id)

    def commit(self, *parts: WorkPart, **changes: Any) -> TxResult:
        """Commit calls."""
        return self.hand.commit(Batch(work=list(parts)), **changes).result

    def claim_all(self, limit: int = 1, queue: str = QUEUE, **options: Any) -> list[LeasedWork]:
        """Claim work."""
        claim = WorkClaim(frozenset((queue,)), options.pop("worker", "tester"), limit, **options)
        ((_, result),) = self.commit(claim).worked
        assert isinstance(result, ClaimResult)
        return result.leased

    def claim(self, **options: Any) -> str:
        """Claim one piece of work, and return its lease."""
        (leased,) = self.claim_all(**options)
        assert leased.row.lease_id is not None
        return leased.row.lease_id

    def call(self, lease_id: str, action: Any, **members: Any) -> LeaseResult:
        """Make a call on a lease."""
        ((_, result),) = self.commit(call_of(lease_id, action, **members)).worked
        assert isinstance(result, LeaseResult)
        return result

    def complete(self, lease_id: str, output: Any = None) -> LeaseResult:
        """Report success."""
        return self.call(lease_id, "complete", text=json.dumps(output), output=output)

    def pass_time(self, seconds: float, *, answering_seconds: float | None = None) -> TxResult:
        """Let time pass, in which a daemon answers; with a number, only for the last part of it."""
        self.hand.skip(seconds)
        now = self.hand.clock.now()
        answered = 10**6 if answering_seconds is None else answering_seconds
        answering = AnsweredTime(now - int(answered * SECOND), now)
        return self.hand.commit(answering=answering).result

    def work(self) -> list[dict[str, Any]]:
        """Return the rows of all work, in order."""
        names = ("status", "attempt", "lease_id", "leased_by", "lease_expires_at", "call_id")
        rows = self.hand.rows(f"SELECT {', '.join(names)} FROM work ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def work_statuses(self) -> list[str]:
        """Return the statuses of all work, in order."""
        return [row["status"] for row in self.work()]


def call_of(lease_id: str, action: Any, **members: Any) -> LeaseCall:
    """Return a call on a lease."""
    address = parse_lease(lease_id)
    assert address is not None
    may_use = members.pop("may_use", lambda _: True)
    return LeaseCall(lease_id, address, action, may_use, **members)
