"""The triggers of a run: passes of every worker, sources that show items by time, and their account.

At the end every instant and every item that was shown has one fate, and at most one task.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from agent import recovery
from agent.config.models import BudgetSettings
from agent.core.clock import SECOND
from agent.steps.attempt.services import Limits
from agent.store.db.database import Database, StoreError
from agent.store.engine import firing_rows, trigger_rows, workflow_versions
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.worker.worker import Worker
from agent.triggers import sync, watch_runner
from agent.triggers.commands.trigger_commands import TriggerCommands
from agent.triggers.schedules.passes import SchedulePass
from agent.triggers.schedules.schedule_runner import run_schedules
from agent.triggers.watch_runner import WatchRunner
from agent.triggers.watchers.source import Item, Poll, PollContext, SourceError
from agent.workflows.graph import Graph
from tests.simulation.scenario import JsonObject

if TYPE_CHECKING:
    from tests.simulation.run import _Machine

DIRECTORY = "simulated"
PASS_SECONDS = 1.0
CORRECTION_PASSES = 5
"""After this many passes, times that a wrong clock has set are corrected."""
SETTLED_SECONDS = 20.0
"""How far a trigger may be behind once nothing goes wrong: its pass, its backoff, its last poll."""
_NEVER = {"at": ["2020-01-01T00:00:00Z"]}
_TIMING = ("every_seconds", "jitter_seconds")


class SimulatedSource:
    """Shows items from their times on; the first polls go as its plan says."""

    def __init__(self, machine: "_Machine", source: JsonObject) -> None:
        self._machine = machine
        self._items: list[float] = source["items"]
        self._mode: str = source["mode"]
        self._plan = iter(source["plan"])

    def keys(self) -> list[str]:
        """Return the keys of all items."""
        return [str(number) for number in range(len(self._items))]

    async def poll(self, cursor: Any, _context: PollContext) -> Poll:
        """Show what there is now, or fail."""
        word = "ok" if self._machine.is_calm else next(self._plan, "ok")
        self._machine.result.happened[f"poll: {word}"] += 1
        now = self._machine.loop.time()
        shown = [number for number, at in enumerate(self._items) if at <= now]
        if word == "slow":
            await asyncio.sleep(2.0)
        if word == "late":
            await asyncio.sleep(60.0)
        if word == "error":
            raise SourceError("the source is away", retry_seconds=0.5)
        since = cursor or 0 if self._mode == "since" else 0
        items = [Item(str(number), {"key": str(number)}) for number in shown if number >= since]
        return Poll(items, len(shown))


class Triggers:
    """What starts tasks by itself in one run."""

    def __init__(self, machine: "_Machine") -> None:
        self._machine = machine
        self._sources = {
            each["name"]: SimulatedSource(machine, each) for each in machine.scenario.sources
        }
        self._graphs = {
            name: graph for name, graph in machine.graphs.items() if any(graph.on.values())
        }

    @property
    def are_there(self) -> bool:
        """Whether this run has any."""
        return bool(self._graphs)

    @contextmanager
    def sources(self) -> Iterator[None]:
        """Let watchers poll the simulated sources."""
        with patch.object(watch_runner, "source_of", self._source_of):
            yield

    def _source_of(self, spec: JsonObject) -> SimulatedSource:
        return self._sources[spec["python"]["call"].partition(":")[2]]

    # What daemons do.

    async def drive(self, worker: Worker, database: Database) -> None:
        """Run the passes of one daemon until it ends."""
        if not self.are_there:
            return
        clock = self._machine.clock
        schedules = SchedulePass(database, clock, BudgetSettings())
        runner = WatchRunner(database, clock, Limits(), worker.fire)
        number = 0
        while True:
            try:
                if number == 0 and self._machine.scenario.workers == 1:
                    await asyncio.to_thread(
                        recovery.recover_triggers, database, clock, BudgetSettings()
                    )
                elif number % CORRECTION_PASSES == 0:
                    for plan in await asyncio.to_thread(schedules.plan_corrections):
                        await worker.fire(plan)
                await run_schedules(schedules, worker.fire)
                await runner.start_due()
                number += 1
            except StoreError as error:
                self._machine.tell("triggers", f"a pass failed: {error}")
            await asyncio.sleep(PASS_SECONDS)

    def define(self, database: Database) -> None:
        """Record every workflow with triggers as the one in force."""
        for graph in self._graphs.values():
            self._sync(database, graph)

    def _sync(self, database: Database, graph: Graph) -> None:
        now = self._machine.clock.now()
        with database.connect("writer") as tx, tx.transaction():
            version = workflow_versions.register(
                tx, graph.name, graph.hash, graph.text, None, None, now
            )
            sync.sync_workflow(tx, graph, version, DIRECTORY, now)

    # What people do.

    async def operate(self, operation: JsonObject) -> None:
        """Do one thing to one trigger, and again if the result is unknown."""
        await asyncio.sleep(operation["at"])
        for _ in range(3):
            try:
                await self._machine.visit("operator", self._command(operation))
            except (RefusedError, NotFoundError) as error:
                self._machine.tell("operator", f"{operation}: refused: {error}")
                return
            except StoreError as error:
                self._machine.tell("operator", f"{operation}: {error}")
                await asyncio.sleep(1.0)
                continue
            self._machine.result.happened[f"trigger: {operation['do']}"] += 1
            return

    def _command(self, operation: JsonObject) -> Callable[[Database], Any]:
        trigger_id = operation["trigger"]
        graph = self._graphs[trigger_id.partition(":")[0]]

        def command(database: Database) -> Any:
            commands = TriggerCommands(database, self._machine.clock)
            match operation["do"]:
                case "remove":
                    return self._remove(database, graph.name)
                case "restore":
                    return self._sync(database, graph)
                case "edit":
                    return self._sync(database, _edited(graph, {"catch_up": "none"}))
                case "run":
                    # Under a key: it is repeated if its result is unknown.
                    return commands.run(trigger_id, request_key=f"asked {operation['at']}")
                case word:
                    return getattr(commands, word)(trigger_id)

        return command

    def _remove(self, database: Database, workflow: str) -> None:
        with database.connect("writer") as tx, tx.transaction():
            sync.remove_triggers(tx, workflow, DIRECTORY, self._machine.clock.now())

    # How it ends.

    async def settle(self) -> None:
        """Take everything into use again, let it catch up, check it, then let the schedules end."""
        if not self.are_there:
            return
        await self._machine.visit("settler", self.define)
        await self._machine.visit("settler", self._resume_all)
        await asyncio.sleep(SETTLED_SECONDS)
        problems = await self._machine.visit("settler", self._overdue)
        self._machine.result.problems += [f"it has stopped: {each}" for each in problems]
        self._machine._check("before the schedules end")
        await self._machine.visit("settler", self._end_schedules)

    def _rows(self, database: Database) -> list[TriggerRow]:
        with database.connect("reader") as connection:
            return trigger_rows.all_rows(connection)

    def _resume_all(self, database: Database) -> None:
        commands = TriggerCommands(database, self._machine.clock)
        for row in self._rows(database):
            if row.status == "paused":
                commands.resume(row.id)
            elif row.kind == "watch":
                # It may be away for long after failures.
                commands.run(row.id)

    def _overdue(self, database: Database) -> list[str]:
        """Return triggers that do not go on: too far behind, or due too late."""
        now = self._machine.clock.now()
        found = []
        for row in self._rows(database):
            if row.status == "paused" and "failed" in str(row.pause_reason):
                continue
            spec = json.loads(row.spec)
            longest = int(sum(spec.get(name) or 0.0 for name in _TIMING) * SECOND)
            late = SETTLED_SECONDS * SECOND // 2
            if row.next_at is None or not -late <= row.next_at - now <= longest + SECOND:
                found.append(f"{row.id} is {row.status}, due at {row.next_at}, and it is {now}")
        return found

    def _end_schedules(self, database: Database) -> None:
        """Edit the times of all schedules away; what is queued still starts."""
        for graph in self._graphs.values():
            self._sync(database, _edited(graph, _NEVER, without=_TIMING))

    def waiting(self, database: Database) -> list[str]:
        """Return queued runs of triggers that are in use."""
        if not self.are_there:
            return []
        with database.connect("reader") as connection:
            found = connection.query(
                "SELECT f.trigger_id, f.key FROM firings AS f JOIN triggers AS t"
                " ON t.id = f.trigger_id WHERE f.status = 'queued' AND t.status = 'active'"
                " ORDER BY f.trigger_id, f.key"
            )
        return [f"{key} of {trigger} is queued" for trigger, key in found]

    def broken_promises(self, database: Database) -> list[str]:
        """Return the items without a fate, firings without their task, and tasks of one key."""
        if not self.are_there:
            return []
        with database.connect("reader") as connection:
            keys = connection.query("SELECT trigger_id, key FROM firings")
            started = connection.query(
                "SELECT f.trigger_id, f.key FROM firings AS f LEFT JOIN tasks AS k"
                " ON k.id = f.task_id WHERE f.task_id IS NOT NULL AND k.id IS NULL"
            )
            tasks = connection.query(
                "SELECT trigger_id, trigger FROM tasks WHERE trigger_id IS NOT NULL"
                " AND retry_of IS NULL"
            )
        for status, count in self._fates(database).items():
            self._machine.result.happened[f"firing: {status}"] += count
        problems = [f"{trigger} has started {key}, without a task" for trigger, key in started]
        problems += self._items_without_fate({(str(trigger), str(key)) for trigger, key in keys})
        problems += _several_tasks(tasks)
        return problems

    def _fates(self, database: Database) -> dict[str, int]:
        with database.connect("reader") as connection:
            return firing_rows.counts(connection)

    def _items_without_fate(self, keys: set[tuple[str, str]]) -> list[str]:
        missing = []
        for graph in self._graphs.values():
            for watcher in graph.on["watch"]:
                source = self._source_of(watcher)
                trigger = f"{graph.name}:{watcher['id']}"
                missing += [
                    f"item {key} of {trigger} has no fate"
                    for key in source.keys()  # noqa: SIM118 - not a mapping
                    if (trigger, key) not in keys
                ]
        return missing


def _several_tasks(tasks: list[tuple[Any, ...]]) -> list[str]:
    """Return the instants and items that several tasks stand for."""
    counts: Counter[tuple[str, str]] = Counter()
    for trigger_id, text in tasks:
        context = json.loads(text)
        if context["kind"] == "schedule":
            if context["fate"] != "manual":
                counts[(trigger_id, context["scheduled_for"])] += 1
        else:
            items = context.get("items") or [context["item"]]
            counts.update((trigger_id, item["key"]) for item in items)
    return [
        f"{count} tasks were started for {key} of {trigger}"
        for (trigger, key), count in sorted(counts.items())
        if count > 1
    ]


def _edited(graph: Graph, values: JsonObject, without: tuple[str, ...] = ()) -> Graph:
    """Return a workflow whose schedules have other keys."""
    schedules = [
        {name: value for name, value in {**each, **values}.items() if name not in without}
        for each in graph.on["schedule"]
    ]
    on = {**graph.on, "schedule": schedules}
    return Graph.model_validate({**graph.model_dump(), "on": on})
