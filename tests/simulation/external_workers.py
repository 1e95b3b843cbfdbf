"""The external workers of a run: they claim, report, vanish, answer late and answer twice.

No fault of the machine touches them. They know of their leases what a worker can know: a lease lasts at
least as long as it says, from the moment at which the call was made that extended it. No other worker may
get the same work before that; time in which no daemon answered does not count against anyone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from agent.store.db.database import StoreError
from agent.tasks.rules.external_work.work_parts import (
    ClaimResult,
    LeaseCall,
    LeasedWork,
    LeaseResult,
    WorkClaim,
    parse_lease,
)
from agent.tasks.worker.external_workers import ExternalWorkers
from agent.tasks.worker.worker import Worker
from tests.simulation.scenario import HORIZON_SECONDS, JsonObject

if TYPE_CHECKING:
    from tests.simulation.run import _Machine

Answer = TypeVar("Answer")

TRIES = 40
"""How often a worker repeats a call whose answer was lost."""


@dataclass
class Lease:
    """What a worker knows of its lease."""

    lease_id: str
    work: LeasedWork
    until: float
    """It lasts at least until then, by the machine's own time."""
    run_until: float = float("inf")
    """The execution timeout ends it then, whatever the heartbeats say."""
    is_over: bool = False

    def lasts(self, now: float) -> bool:
        """Whether the worker may rely on it."""
        return not self.is_over and now < min(self.until, self.run_until)

    @property
    def seconds(self) -> float:
        """How long it lasts without a sign."""
        return self.work.row.lease_us / 1e6


class ExternalWorld:
    """All external workers of one run."""

    def __init__(self, machine: "_Machine") -> None:
        self._machine = machine
        self._held: dict[str, Lease] = {}
        """The lease of each step that some worker has, as far as workers know."""
        self._tasks: list[asyncio.Task[None]] = []

    def attach(self, worker: Worker) -> None:
        """Let a daemon answer external workers."""
        if self._machine.scenario.external:
            worker.answering.open()

    def start(self) -> None:
        """Start the external workers."""
        for number, drawn in enumerate(self._machine.scenario.external):
            work = self._work(f"external {number}", drawn)
            self._tasks.append(self._machine.loop.create_task(work))

    def stop(self) -> None:
        """End them; one that a defect has ended would look like one that vanished."""
        for task in self._tasks:
            if task.done() and (error := task.exception()) is not None:
                self._machine.result.problems.append(
                    f"an external worker ended by a defect: {error!r}"
                )
            task.cancel()

    async def _work(self, name: str, drawn: JsonObject) -> None:
        plan = iter(drawn["plan"])
        if drawn.get("is_last"):
            await asyncio.sleep(HORIZON_SECONDS)
        queues = frozenset(drawn["queues"])
        following: Lease | None = None
        while True:
            word = "ok" if self._machine.is_calm else next(plan, "ok")
            lease = following or await self._claim(name, queues, word)
            following = None
            if lease is None:
                await asyncio.sleep(0.5)
                continue
            self._machine.tell(name, f"{word}: {lease.lease_id}")
            self._machine.result.happened[f"external: {word}"] += 1
            is_begun = await self._do(lease, word)
            if is_begun and word.startswith("next"):
                following = await self._complete_and_claim(name, queues, lease, word)

    async def _claim(self, name: str, queues: frozenset[str], word: str) -> Lease | None:
        machine = self._machine
        token = f"{name} {machine.loop.time()}" if word == "again" else None
        claim = WorkClaim(queues, name, client_token=token)
        asked = machine.loop.time()
        result: ClaimResult | None = await self._send(lambda daemon: daemon.claim(claim, 1.0))
        if word == "again" and result is not None and result.leased:
            # The answer was lost: the same lease comes again, of any daemon.
            lost = result.leased[0].row
            repeated = WorkClaim(queues, name, client_token=token)
            result = await self._send(lambda daemon: daemon.claim(repeated, 0.0))
            if result is not None and result.leased:
                found = result.leased[0].row
                if (found.id, found.lease_id) != (lost.id, lost.lease_id):
                    text = f"a repeated claim got {found.lease_id} after {lost.lease_id}"
                    machine.result.problems.append(text)
        if result is None or not result.leased:
            return None
        return self._hold(result.leased[0], asked)

    def _hold(self, work: LeasedWork, asked: float, *, has_begun: bool = False) -> Lease:
        """Return a lease that was given out."""
        row = work.row
        assert row.lease_id is not None
        lease = Lease(row.lease_id, work, asked + row.lease_us / 1e6)
        if has_begun and row.timeout_us is not None:
            lease.run_until = asked + row.timeout_us / 1e6
        self._rely_on(lease)
        return lease

    def _rely_on(self, lease: Lease) -> None:
        """Check that no other worker may rely on a lease of the same step at this moment.

        An answer that comes after the lease says nothing: the worker asks before it begins.
        """
        now, step_id = self._machine.loop.time(), lease.work.row.step_id
        if not lease.lasts(now):
            return
        other = self._held.get(step_id)
        if other is not None and other.lasts(now) and other.lease_id != lease.lease_id:
            text = f"{lease.lease_id} was given out while {other.lease_id} lasts"
            self._machine.result.problems.append(text)
        self._held[step_id] = lease

    async def _do(self, lease: Lease, word: str) -> bool:
        """Do what the word says; return whether the work has begun under a lease that counts."""
        if word == "vanish":
            return False
        if word == "release":
            await self._call(lease, "release", message="no time")
            return False
        began = await self._call(lease, "running")
        if began is None or began.lost is not None or not lease.lasts(self._machine.loop.time()):
            # A worker whose lease may be over begins nothing.
            return False
        if began.directive == "continue" and word not in ("fail", "final", "give back", "ask"):
            await self._act(lease)
        match word:
            case "begin and vanish" | "next" | "next lost" | "next and vanish":
                pass
            case "fail":
                await self._call(lease, "fail", message="it does not work")
            case "final":
                await self._call(lease, "fail", message="never", is_retryable=False)
            case "give back":
                await self._call(lease, "release", message="begun in vain")
            case "ask":
                await self._call(lease, "ask", message="how?", checkpoint='{"asked": true}')
            case _:
                await self._finish(lease, word)
        return True

    async def _complete_and_claim(
        self, name: str, queues: frozenset[str], lease: Lease, word: str
    ) -> Lease | None:
        """Send a result that carries the next claim, until an answer arrives; return the next lease.

        The claim begins the work at once. A worker that vanishes now has begun what it never heard of.
        """
        machine = self._machine
        address = parse_lease(lease.lease_id)
        assert address is not None
        asked = machine.loop.time()
        token = f"{name} next {asked}"
        lease.is_over = True
        first: tuple[LeaseResult, ClaimResult] | None = None
        for _ in range(TRIES):
            call = LeaseCall(
                lease.lease_id, address, "complete", lambda _: True, text='"done"', output="done"
            )
            claim = WorkClaim(queues, name, client_token=token, must_start=True)
            found = await self._send(lambda daemon: self._both(daemon, call, claim))  # noqa: B023
            if word == "next and vanish":
                return None
            if found is None:
                await asyncio.sleep(0.5)
            elif word == "next lost" and first is None:
                first = found
            else:
                machine.result.problems += _changed_answers(first, found)
                leased = found[1].leased
                return self._hold(leased[0], asked, has_begun=True) if leased else None
        return None

    async def _both(
        self, daemon: ExternalWorkers, call: LeaseCall, claim: WorkClaim
    ) -> tuple[LeaseResult, ClaimResult]:
        """Let one daemon apply a result and a claim: in one commit, or in two in either order."""
        order = self._machine.loop.chance.choice(["together", "result first", "claim first"])
        if order == "together":
            ended, claimed = await asyncio.gather(daemon.call(call), daemon.claim(claim, 0.0))
        elif order == "result first":
            ended = await daemon.call(call)
            claimed = await daemon.claim(claim, 0.0)
        else:
            claimed = await daemon.claim(claim, 0.0)
            ended = await daemon.call(call)
        return ended, claimed

    async def _act(self, lease: Lease) -> None:
        """Let the effect happen at once: a worker that begins later could come too late."""
        row = lease.work.row
        if lease.work.remote_key is None:
            return
        with self._machine.observe().connect("reader") as connection:
            ((origin, policy),) = connection.query(
                "SELECT t.origin_id, c.on_unknown FROM tasks AS t, tool_calls AS c"
                " WHERE t.id = :task AND c.step_id = :step ORDER BY c.attempt DESC LIMIT 1",
                task=row.task_id,
                step=row.step_id,
            )
        name = (origin, f"{lease.work.step}[{row.parallel_index}]", 1)
        key = lease.work.remote_key
        self._machine.world.happen(key, key, name, is_once=policy != "retry")

    async def _finish(self, lease: Lease, word: str) -> None:
        chance = self._machine.loop.chance
        if word == "slow":
            for _ in range(6):
                await asyncio.sleep(lease.seconds / 3)
                state = await self._call(lease, "heartbeat")
                if state is None or state.lost is not None or state.directive != "continue":
                    break
        elif word == "late":
            await asyncio.sleep(lease.seconds * chance.uniform(1.0, 4.0))
        else:
            await asyncio.sleep(chance.uniform(0.0, 1.0))
        done = await self._call(lease, "complete", text='"done"', output="done")
        self._machine.result.happened["external: settled late"] += bool(done and done.is_late)
        if word == "twice":
            again = await self._call(lease, "complete", text='"done"', output="done")
            if done and done.lost is None and not done.is_late and again and again.lost is not None:
                text = f"{lease.lease_id} was completed, and then {again.lost}"
                self._machine.result.problems.append(text)

    async def _call(self, lease: Lease, action: Any, **members: Any) -> LeaseResult | None:
        """Make a call until its answer arrives; the lease lasts from its first try on."""
        address = parse_lease(lease.lease_id)
        assert address is not None
        asked = self._machine.loop.time()
        # A worker that gives its work up relies on nothing from then on.
        lease.is_over = lease.is_over or action in ("complete", "fail", "release", "ask")
        timeout_us = lease.work.row.timeout_us
        if action == "running" and timeout_us is not None:
            lease.run_until = min(lease.run_until, asked + timeout_us / 1e6)
        for _ in range(TRIES):
            call = LeaseCall(lease.lease_id, address, action, lambda _: True, **members)
            result: LeaseResult | None = await self._send(lambda daemon: daemon.call(call))  # noqa: B023
            if result is None:
                await asyncio.sleep(0.5)
                continue
            if result.lost is not None or result.directive == "cancel":
                lease.is_over = True
            elif action in ("running", "heartbeat") and result.lease_expires_at is not None:
                # It may have been written up to a third of a lease before.
                lease.until = max(lease.until, asked + lease.seconds * 2 / 3)
                self._rely_on(lease)
            return result
        return None

    async def _send(
        self, make: Callable[[ExternalWorkers], Coroutine[Any, Any, Answer]]
    ) -> Answer | None:
        """Send a call to some daemon; None if there is none, or it dies before its answer."""
        machine = self._machine
        living = [worker for worker in machine.workers if worker is not None]
        if not living:
            return None
        worker = machine.loop.chance.choice(living)
        process = worker.database.process  # type: ignore[attr-defined]
        answer = machine.loop.start_in(process, make(worker.external_workers))
        waited = 0.0
        while not answer.done():
            await asyncio.wait([answer], timeout=0.5)
            waited += 0.5
            if process.is_dead or worker not in machine.workers or waited > 30.0:
                answer.cancel()
                return None
        try:
            result: Answer = answer.result()
        except (StoreError, asyncio.CancelledError):
            return None
        return result


def _changed_answers(
    first: tuple[LeaseResult, ClaimResult] | None, repeated: tuple[LeaseResult, ClaimResult]
) -> list[str]:
    """Return what is wrong with the answers to a repeated result that carries a claim."""
    if first is None:
        return []
    problems = []
    if first[0].lost is None and not first[0].is_late and repeated[0].lost is not None:
        problems.append(f"a result was recorded, and its repetition is {repeated[0].lost}")
    before, after = (
        [work.row.lease_id for work in result.leased] for _, result in (first, repeated)
    )
    # The first lease may have expired, or its task ended: then the repetition gets nothing.
    if after and before and after != before:
        problems.append(f"a repeated claim in a result got {after} after {before}")
    return problems
