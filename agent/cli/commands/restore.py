"""`agent db restore` and `agent db check`: a backup takes the database's place, and what follows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import invocation, session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.core.files.process_lock import Lock
    from agent.restore import Held
    from agent.store.db.database import Database


def restore(
    source: Annotated[Path, Argument(metavar="FILE", help="A backup of a SQLite database.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Put a backup in the database's place; no agent may be running.

    Effects that happened after the backup are not in it: a task that went on by itself would repeat
    them. So every open task and every trigger in it is paused until you resume it. The replaced file
    is kept beside the new one.
    """
    from agent import bootstrap
    from agent import restore as restoring
    from agent.cli.output import terminal
    from agent.core.clock import to_iso

    session.require_person("restore a database")
    settings = session.settings()
    database = bootstrap.configured_database(settings)
    if database.path is None:
        raise CommandError(
            "this restores SQLite only: use pg_restore, then run"
            f" `{invocation.program()} db check --hold` before you start the agent"
        )
    if source.exists() and database.path.exists() and source.samefile(database.path):
        raise CommandError(f"{source} is the database itself")
    database.path.parent.mkdir(mode=bootstrap.PRIVATE_MODE, parents=True, exist_ok=True)
    lock = _locked(database) if database.path.exists() else None
    try:
        restored = restoring.restore(database, source)
    finally:
        if lock is not None:
            lock.release()
    contents = restored.contents
    session.audit("db restore", subject=str(source), backup_at=to_iso(contents.made_at))
    if as_json:
        terminal.print_json(
            {
                "file": str(source),
                "backup_at": to_iso(contents.made_at),
                "schema": contents.schema,
                "tasks": contents.tasks,
                "replaced": None if restored.replaced is None else str(restored.replaced),
                "held": restored.held.document(),
            }
        )
        return
    when = terminal.moment(to_iso(contents.made_at)) or "an unknown time"
    terminal.print_line(f"restored {database.path}: {contents.tasks:,} tasks, as of {when}")
    if restored.replaced is not None:
        terminal.print_line(f"the database that was there is now {restored.replaced}")
    _print_held(restored.held)


def backups(*, as_json: JsonOption = False) -> None:
    """List the backups that the running agent has written."""
    from agent.cli.output import terminal
    from agent.core.clock import to_iso
    from agent.store import backup

    directory = session.settings().backup_directory
    backups = backup.list_backups(directory)
    if as_json:
        terminal.print_json(
            [
                {
                    "file": str(copy.path),
                    "made_at": to_iso(copy.made_at),
                    "bytes": copy.bytes,
                    "before_upgrade": copy.is_before_upgrade,
                }
                for copy in backups
            ]
        )
    elif backups:
        rows = [
            (
                str(copy.path),
                terminal.ago(to_iso(copy.made_at)),
                f"{copy.bytes:,}",
                "before an upgrade" if copy.is_before_upgrade else "",
            )
            for copy in backups
        ]
        terminal.print_table(("file", "made", "bytes", ""), rows)
    else:
        terminal.print_line(f"there are no backups in {directory} yet")


def check(
    *,
    hold: Annotated[
        bool,
        Option("--hold", help="Pause every open task and every trigger, after pg_restore."),
    ] = False,
    release: Annotated[
        bool, Option("--release", help="Resume all that a restore has paused.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the database's file, and list what a restore has paused.

    Each of these tasks may repeat effects that happened after the backup: look, then resume or cancel it.
    """
    from agent import restore as restoring
    from agent.cli.output import terminal

    if hold and release:
        raise CommandError("--hold and --release contradict each other")
    if hold or release:
        session.require_person("hold or release tasks after a restore")
    database = session.database()
    problems = _damage(database)
    if hold:
        _refuse_running(database)
        held = restoring.hold_all(database, database.clock)
        session.audit("db check --hold", tasks=len(held.tasks), triggers=len(held.triggers))
    elif release:
        held = restoring.release_all(database, database.clock)
        session.audit("db check --release", tasks=len(held.tasks), triggers=len(held.triggers))
    else:
        held = restoring.held(database)
    if as_json:
        document: dict[str, Any] = {"ok": not problems, "problems": problems}
        document["released" if release else "held"] = held.document()
        terminal.print_json(document)
    else:
        _print_check(problems, held, is_released=release)
    if problems:
        raise SystemExit(int(Exit.REFUSED))


def _print_check(problems: list[str], held: "Held", *, is_released: bool) -> None:
    from agent.cli.output import terminal

    for problem in problems:
        terminal.print_line(f"✗ {problem}", "red")
    if not problems:
        terminal.print_line("✓ the database is sound", "green")
    if is_released:
        count = f"{len(held.tasks):,} tasks and {len(held.triggers):,} triggers"
        terminal.print_line(f"resumed {count}; what the triggers missed meanwhile is skipped")
    else:
        _print_held(held)


def _print_held(held: "Held") -> None:
    """Print the tasks held since a restore, and how to resume them."""
    from agent.cli.output.terminal import print_line, print_table, short

    if not held.tasks and not held.triggers:
        print_line("no task and no trigger is held")
        return
    if held.tasks:
        print_line("\nheld: these steps may have acted after the backup, and would act again:")
        rows = [
            (short(task.id), task.workflow, ", ".join(_acting(task.steps)) or "none")
            for task in held.tasks
        ]
        print_table(("task", "workflow", "steps"), rows)
    if held.triggers:
        print_line(f"\nheld triggers: {', '.join(held.triggers)}")
    program = invocation.program()
    print_line(
        f"\n`{program} resume TASK` lets a task go on, `{program} cancel TASK` ends it;"
        f" `{program} schedules resume NAME` and `{program} watchers resume NAME` skip what came"
        f" meanwhile. `{program} db check --release` resumes everything."
    )


def _acting(steps: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the steps whose attempts have effects."""
    from agent.steps.spec.registry import KINDS

    return [f"{name} ({kind})" for name, kind in steps if kind not in KINDS or KINDS[kind].acts]


def _damage(database: "Database") -> list[str]:
    from agent.store.read import health
    from agent.store.schema import migrate

    with database.connect("reader") as connection:
        damage = health.damage(connection)
    return damage + [f"not made by the agent: {each}" for each in migrate.foreign_objects(database)]


def _locked(database: "Database") -> "Lock | None":
    from agent.daemon import database_lock

    try:
        return database_lock.take_lock(database, "upkeep")
    except database_lock.AlreadyRunningError as error:
        raise CommandError(f"{error}; stop it first", Exit.REFUSED) from None


def _refuse_running(database: "Database") -> None:
    from agent import bootstrap

    holder = bootstrap.holder_of(database)
    if holder is not None:
        raise CommandError(
            f"an agent is running on this database (process {holder.process_id}); stop it first",
            Exit.REFUSED,
        )
