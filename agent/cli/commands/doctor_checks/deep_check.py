"""`agent doctor --deep`: checks the whole database, or the tasks that ended since an instant."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.cli import invocation

if TYPE_CHECKING:
    from agent.store.db.database import Connection

DeepResult = tuple[str | None, str | None, str, str]
"""(task, step, state, message)."""


@dataclass(slots=True)
class DeepCheck:
    """One pass over all tasks, and its progress."""

    since: int | None = None
    """Tasks that ended before this instant are skipped."""
    is_quiet: bool = False
    _count: int = 0
    _total: int = 0
    _last: str | None = None

    def results(self, connection: "Connection") -> Iterator[DeepResult]:
        """Yield each problem, and a last line that sums up."""
        from agent import bootstrap

        # A page of tasks makes a hundred thousand short-lived objects.
        bootstrap.collect_garbage_seldom()
        problems = 0
        try:
            for problem in self._problems(connection):
                problems += 1
                yield problem
        except KeyboardInterrupt:
            self._print_continuation(connection)
            raise
        if problems:
            yield None, None, "error", f"{problems} problems"
        else:
            yield None, None, "ok", self._summary()

    def _problems(self, connection: "Connection") -> Iterator[DeepResult]:
        from agent.cli.output import terminal
        from agent.store.read import health
        from agent.store.read.audit import task_reads as audit_reads
        from agent.store.schema import migrate
        from agent.tasks import checker
        from agent.triggers.schedules import fate_check

        with connection.snapshot():
            self._total = audit_reads.task_count(connection, self.since)
            if self.since is None:
                with terminal.working("checking the file", is_quiet=self.is_quiet):
                    damage = health.damage(connection)
                    damage += [
                        f"not made by the agent: {each}"
                        for each in migrate.foreign_objects(connection.database)
                    ]
            else:
                damage = []
        for problem in damage:
            yield None, None, "error", problem
        with terminal.counting("tasks", self._total, is_quiet=self.is_quiet) as show:

            def progress(count: int, task_id: str) -> None:
                self._count, self._last = count, task_id
                show(count)

            violations = checker.violations(
                connection, progress=progress, since=self.since, further=[fate_check.check_fates]
            )
            for violation in violations:
                task_id = violation.task_id
                where = "" if task_id is None else f"task {terminal.short(task_id)}: "
                yield task_id, violation.step, "error", where + violation.sentence

    def _summary(self) -> str:
        if self.since is None:
            return f"checked everything ({self._total} tasks): no problems"
        return (
            f"checked the {self._total} tasks that had not ended before {_written(self.since)}: no"
            " problems; older tasks and the file itself were not checked"
        )

    def _print_continuation(self, connection: "Connection") -> None:
        """After an interrupt, print the command that continues; tasks are in the order of creation."""
        from agent.cli.output import terminal
        from agent.store.read.audit import task_reads as audit_reads

        if self._last is None:
            return
        created = audit_reads.created_at(connection, self._last)
        if created is None:
            return
        terminal.note(
            f"interrupted: {self._count:,} of {self._total:,} tasks were checked; continue with"
            f" `{invocation.program()} doctor --deep --since {_written(created)}`"
        )


def _written(instant: int) -> str:
    from datetime import UTC, datetime

    from agent.core.clock import SECOND

    # Rounded down: a task checked twice is better than one not checked.
    return datetime.fromtimestamp(instant // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
