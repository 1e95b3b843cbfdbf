"""The operator's commands on triggers: pause, resume, run, skip, backfill, reset.

Each is one transaction under the trigger's lock, planned from the row at one version
(`state_commands`, `run_commands`); a plan that a pass of the daemon has made stale is made again. A
removed trigger refuses every command.
"""

from datetime import tzinfo
from typing import Final

from agent.core.clock import Clock
from agent.core.state_machine import TriggerStatus
from agent.store.db.database import Connection, Database
from agent.store.engine import trigger_rows
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator.operator import Operator
from agent.tasks.state.graph_cache import GraphCache
from agent.triggers.commands import run_commands, state_commands
from agent.triggers.commands.command_plan import Planner, TriggerResult
from agent.triggers.documents import find_trigger, zone_of
from agent.triggers.run_builder import RunBuilder

_ATTEMPTS: Final = 10


class TriggerCommands:
    """Commands on the triggers of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._operator = Operator(database, clock)
        self._builder = RunBuilder(GraphCache())

    def find(self, text: str, kind: str | None = None) -> TriggerRow:
        """Return the trigger of an id, of a unique name, or the only one of a workflow."""
        with self._database.connect("reader") as connection:
            rows = {row.id: row for row in trigger_rows.all_rows(connection)}
        candidates = [
            {name: getattr(row, name) for name in ("id", "workflow", "name", "kind", "status")}
            for row in rows.values()
        ]
        return rows[find_trigger(candidates, text, kind)]

    def zone(self, trigger_id: str) -> tzinfo:
        """Return the time zone of a trigger: times without an offset are read in it."""
        with self._database.connect("reader") as connection:
            return zone_of(self._row(connection, trigger_id))

    def pause(
        self,
        trigger_id: str,
        until_us: int | None = None,
        reason: str | None = None,
        kind: str | None = None,
    ) -> TriggerResult:
        """Start nothing by itself, until a time or until it is resumed; queued runs stay queued."""
        return self._apply(trigger_id, state_commands.pause(until_us, reason, kind))

    def resume(self, trigger_id: str, *, catch_up: bool = False) -> TriggerResult:
        """End a pause. Instants and items of the pause are skipped, unless they are to be caught up."""
        return self._apply(trigger_id, state_commands.resume(self._builder, catch_up=catch_up))

    def reset(self, trigger_id: str) -> TriggerResult:
        """Let a watcher start from nothing: its next poll is a first one. Known items stay known."""
        return self._apply(trigger_id, state_commands.reset())

    def run(self, trigger_id: str, *, request_key: str | None = None) -> TriggerResult:
        """Start a task of a schedule now, or let a watcher poll now.

        Overlap does not hold for it: a person asked. A repeated request key starts nothing again.
        """
        return self._apply(trigger_id, run_commands.run(self._builder, request_key))

    def skip(self, trigger_id: str, *, request_key: str | None = None) -> TriggerResult:
        """Let the next instant of a schedule pass: its row says so, and the one after it is next.

        A repeated request key skips nothing again.
        """
        return self._apply(trigger_id, run_commands.skip(request_key))

    def backfill(
        self,
        trigger_id: str,
        from_us: int,
        to_us: int,
        *,
        most: int | None = None,
        dry_run: bool = False,
    ) -> TriggerResult:
        """Queue runs for instants of the past that have no fate of their own, the oldest first."""
        plan = run_commands.backfill(self._builder, from_us, to_us, most=most, dry_run=dry_run)
        return self._apply(trigger_id, plan)

    def _apply(self, trigger_id: str, plan: Planner) -> TriggerResult:
        """Plan a command and apply it; plan again if the trigger has changed meanwhile."""
        for _ in range(_ATTEMPTS):
            with self._database.connect("reader") as connection:
                row = self._row(connection, trigger_id)
                if row.status == TriggerStatus.REMOVED:
                    raise RefusedError(
                        f"{trigger_id} was removed from its workflow {row.workflow!r}:"
                        " it starts nothing any more"
                    )
                planned = plan(connection, row, self._clock.now())
            if planned.update is None:
                return planned.result(trigger_id, None)
            fired = self._operator.fire(planned.update)
            if fired.status == "applied":
                return planned.result(trigger_id, fired)
        raise RefusedError(f"{trigger_id} keeps changing at the moment: try again")

    @staticmethod
    def _row(connection: Connection, trigger_id: str) -> TriggerRow:
        row = trigger_rows.find(connection, trigger_id)
        if row is None:
            raise NotFoundError(f"there is no trigger {trigger_id}")
        return row
