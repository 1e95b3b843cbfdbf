"""Fires due schedules one commit after the other without waiting in between.

A commit of a busy worker takes tens of milliseconds. Instants that become due meanwhile are planned at
once and go into the next commit; only a trigger whose plan is under way is left out until it is recorded.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from agent.core.clock import SECOND, Clock
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.triggers.schedules.passes import MOST_AT_ONCE, Fire, SchedulePass, ScheduleRound

_RELEASE_US: Final = 5 * SECOND
"""How often a run that goes on and on looks at the queued runs that might start."""

_ROUNDING_SECONDS: Final = 0.0005
"""A timer of the event loop may end this much too early."""


async def run_schedules(schedules: SchedulePass, fire: Fire) -> "ScheduleRun":
    """Fire due triggers, and those that become due meanwhile."""
    run = ScheduleRun()
    try:
        while run.must_go_on:
            await run.look(schedules, fire)
            if run.under_way:
                await run.wait(schedules.clock)
    finally:
        # Their plans are applied all the same; a plan that is made again is stale.
        for task in run.under_way:
            task.cancel()
        await asyncio.gather(*run.under_way, return_exceptions=True)
    return run


@dataclass(slots=True)
class ScheduleRun:
    """One run over due schedules, and its result."""

    fates: Counter[str] = field(default_factory=Counter)
    """How often each fate was given."""
    next_time: int | None = None
    """When the next schedule is due, or the next queued run may start."""
    under_way: "dict[asyncio.Task[FireResult], TriggerUpdate]" = field(default_factory=dict)
    must_go_on: bool = True
    _release_at: int = 0

    async def look(self, schedules: SchedulePass, fire: Fire) -> None:
        """Plan due triggers and start to record the plans."""
        busy = {plan.trigger_id for plan in self.under_way.values()}
        room = MOST_AT_ONCE - len(busy)
        if room > 0:
            schedule_round = await asyncio.to_thread(self._look, schedules, busy, room)
            for plan in schedule_round.plans:
                self.under_way[asyncio.ensure_future(fire(plan))] = plan
            self.next_time = schedule_round.next_time
        self.must_go_on = bool(self.under_way)

    def _look(self, schedules: SchedulePass, busy: set[str], room: int) -> ScheduleRound:
        releases = schedules.clock.now() >= self._release_at
        schedule_round = schedules.look(busy, room, releases=releases)
        if releases:
            self._release_at = schedule_round.at + _RELEASE_US
        if schedule_round.next_release is not None:
            self._release_at = min(self._release_at, schedule_round.next_release)
        return schedule_round

    async def wait(self, clock: Clock) -> None:
        """Wait until a plan is recorded, or another schedule is due."""
        has_room = len(self.under_way) < MOST_AT_ONCE
        seconds = None
        if has_room and self.next_time is not None:
            seconds = max(0.0, (self.next_time - clock.now()) / SECOND) + _ROUNDING_SECONDS
        done, _ = await asyncio.wait(
            self.under_way, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        progress = not done
        for task in done:
            progress |= self._note(self.under_way.pop(task), task.result())
        # Without progress, the next run fires the rest.
        self.must_go_on = progress or bool(self.under_way)

    def _note(self, plan: TriggerUpdate, result: FireResult) -> bool:
        self.fates.update(str(fate) for fate in result.fates.values())
        return (result.status == "applied" and plan.version is not None) or bool(result.started)
