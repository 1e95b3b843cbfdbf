"""`agent doctor --deep`: reading the whole database, or what has changed since an instant."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.cli import invocation
from agent.cli.errors import CommandError

if TYPE_CHECKING:
    from agent.store.db.database import Connection

Found = tuple[str | None, str | None, str, str]
"""(task, step, state, message) of something that was found."""


def instant_of(text: str | None) -> int | None:
    """Read `2d` as so long ago, or an ISO instant, which is in UTC unless it says otherwise."""
    from datetime import UTC, datetime

    from agent.core.clock import SECOND, Clock
    from agent.workflows.durations import parse_duration

    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            return Clock().now() - int(parse_duration(text) * SECOND)
        except (ValueError, OverflowError):
            raise CommandError(
                f"--since {text}: give a duration, as in 2d, or an instant, as in 2026-01-31T08:00"
            ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return int(instant.timestamp() * SECOND)


@dataclass(slots=True)
class Reading:
    """One pass over the tasks, and how far it has come."""

    since: int | None = None
    """Tasks that ended before this instant are left out."""
    is_quiet: bool = False
    _count: int = 0
    _total: int = 0
    _last: str | None = None

    def findings(self, connection: "Connection") -> Iterator[Found]:
        """Yield what is not in order, and a last line that says what was read."""
        from agent import bootstrap

        # A page of tasks makes a hundred thousand objects that go by themselves.
        bootstrap.collect_garbage_seldom()
        problems = 0
        try:
            for found in self._problems(connection):
                problems += 1
                yield found
        except KeyboardInterrupt:
            self._say_where_to_go_on(connection)
            raise
        if problems:
            yield None, None, "error", f"{problems} things are not as they should be"
        else:
            yield None, None, "ok", self._summary()

    def _problems(self, connection: "Connection") -> Iterator[Found]:
        from agent.cli.output import terminal
        from agent.store.read import audit_reads, health
        from agent.tasks import checker

        with connection.snapshot():
            self._total = audit_reads.task_count(connection, self.since)
            if self.since is None:
                with terminal.working("checking the file", is_quiet=self.is_quiet):
                    damage = health.damage(connection)
            else:
                damage = []
        for problem in damage:
            yield None, None, "error", problem
        with terminal.counting("tasks", self._total, is_quiet=self.is_quiet) as show:

            def progress(count: int, task_id: str) -> None:
                self._count, self._last = count, task_id
                show(count)

            for violation in checker.violations(connection, progress=progress, since=self.since):
                task_id = violation.task_id
                where = "" if task_id is None else f"task {terminal.short(task_id)}: "
                yield task_id, violation.step, "error", where + violation.sentence

    def _summary(self) -> str:
        if self.since is None:
            return f"everything was read ({self._total} tasks), and all of it is in order"
        return (
            f"{self._total} tasks that have not ended before {_written(self.since)} were read, and"
            " all of it is in order; older tasks and the file itself were not looked at"
        )

    def _say_where_to_go_on(self, connection: "Connection") -> None:
        """After an interrupt: tasks are read in the order of their creation."""
        from agent.cli.output import terminal
        from agent.store.read import audit_reads

        if self._last is None:
            return
        created = audit_reads.created_at(connection, self._last)
        if created is None:
            return
        terminal.note(
            f"interrupted: {self._count:,} of {self._total:,} tasks were read; go on with"
            f" `{invocation.program()} doctor --deep --since {_written(created)}`"
        )


def _written(instant: int) -> str:
    from datetime import UTC, datetime

    from agent.core.clock import SECOND

    # Rounded down: rather one task twice than none.
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
