"""The checks of `agent doctor` on the database: can it be written, its owner, its tasks, its space."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.db.database import Connection, Database

Check = tuple[str, str, str]
"""A subject, its state, and a message."""

_NO_SPACE_BYTES: Final = 64 * 1024
_LONG_TRANSACTION_SECONDS: Final = 300.0


def database_checks(
    settings: "Settings", database: "Database", connection: "Connection"
) -> Iterator[Check]:
    """Check a database: writing, its agent, its tasks, transactions that stay open."""
    from agent import bootstrap
    from agent.cli import other_agents
    from agent.cli.output import terminal
    from agent.store.read import health
    from agent.store.schema import migrate

    version = "PostgreSQL"
    if database.path is not None:
        version = f"SQLite {health.sqlite_version(connection)}, {database.path}"
    yield ("database", "ok", f"{version}, schema {migrate.HEAD}")
    if connection.is_pooled:
        yield (
            "database",
            "ok",
            "reached through a connection pooler: statements are not prepared, and changes by other"
            " processes are found by polling",
        )
    yield from _check_writing(database)
    holder = bootstrap.holder_of(database)
    if holder is None:
        yield ("agent", "warning", other_agents.no_agent(settings, "starts one"))
    else:
        which = f" as process {holder.process_id}" if holder.process_id else ""
        yield ("agent", "ok", f"running{which}")
    summary = ", ".join(
        f"{count} {terminal.activity_of(activity, is_served=holder is not None)}"
        for activity, count in health.open_counts(connection).items()
    )
    yield ("tasks", "ok", summary or "none yet")
    for task_id, step, action in health.unknown_calls(connection):
        short = terminal.short(task_id)
        yield (
            "unknown",
            "warning",
            f"the result of {action} of step {step} in task {short} was never recorded: check whether"
            f" it happened, then `agent resolve {short} {step} --done|--retry|--fail`",
        )
    for task_id in health.stuck_tasks(connection):
        yield ("tasks", "error", f"task {task_id} is running, but nothing will wake it")
    age = health.oldest_transaction_seconds(connection)
    if age > _LONG_TRANSACTION_SECONDS:
        age_text = terminal.duration(age)
        yield ("database", "warning", f"a transaction has been open for {age_text}")


def _check_writing(database: "Database") -> Iterator[Check]:
    from agent.store.db.database import StoreError
    from agent.store.read import health

    try:
        with database.connect("writer") as connection, connection.transaction():
            health.try_writing(connection)
    except StoreError as error:
        yield ("database", "error", str(error))


def space_checks(settings: "Settings") -> Iterator[Check]:
    """Check the space that is left where the agent's files grow."""
    from agent.core.files import disk_space
    from agent.daemon.periodic.disk_watch import describe

    limits = settings.disk
    for space in disk_space.measure(settings.data_directories):
        free = space.free_bytes
        if free < _NO_SPACE_BYTES:
            text = f"no space is left in {space.path}: no task can be created or run"
            yield ("disk", "error", text)
        elif free < limits.critical_mb * disk_space.MEGABYTE:
            yield ("disk", "error", f"only {describe(space)}: free some now")
        elif free < limits.low_mb * disk_space.MEGABYTE:
            yield ("disk", "warning", f"only {describe(space)}")
