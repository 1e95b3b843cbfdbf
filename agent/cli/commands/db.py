"""`agent db`: maintenance of the database."""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import invocation, session
from agent.cli.commands import restore
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.store.db.database import Database
    from agent.store.free_space import DiskUsage
    from agent.store.prune_run import PruneReport
    from agent.store.pruning import Retained

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Upgrade, back up, restore and prune the database.",
)


@app.command("upgrade")
def upgrade(
    *,
    force: Annotated[
        bool,
        Option("--force", help="Fence running workers of earlier versions."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create the database, or upgrade it to this program's schema."""
    from agent import bootstrap as root
    from agent.cli.output import terminal
    from agent.store.schema import migrate

    root.upgrade_database(session.settings(), must_fence=force, on_note=terminal.note)
    if as_json:
        terminal.print_json({"schema": migrate.HEAD})
    else:
        terminal.print_line(f"the database has schema {migrate.HEAD}")


@app.command("backup")
def backup(
    target: Annotated[Path, Argument(metavar="FILE", help="The new file; it must not exist.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Write a consistent copy; an agent may be running."""
    from agent.cli.output import terminal
    from agent.store import backup as backups

    database = session.database()
    if target.exists():
        raise CommandError(f"{target}: this file exists already", Exit.REFUSED)
    if not target.absolute().parent.is_dir():
        raise CommandError(f"{target.absolute().parent}: there is no such directory")
    backups.write(database, target)
    size = target.stat().st_size
    if as_json:
        terminal.print_json({"file": str(target), "bytes": size})
    else:
        terminal.print_line(f"wrote {target} ({size:,} bytes)")


@app.command("prune")
def prune(
    days: Annotated[
        float | None,
        Option(
            "--days",
            metavar="DAYS",
            min=0,
            help="Tasks that ended more days ago (default: engine.retention_days).",
        ),
    ] = None,
    *,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only say what would be removed; change nothing.")
    ] = False,
    vacuum: Annotated[
        bool,
        Option("--vacuum", help="Then compact a SQLite file; no agent may be running."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove old tasks that have ended, and old firings of triggers.

    Their disk space is freed.
    """
    from agent.store import prune_run

    if days is not None and not math.isfinite(days):
        raise CommandError(f"--days {days}: give a number of days")
    if dry_run and vacuum:
        raise CommandError("--vacuum removes free space: leave out --dry-run")
    settings = session.settings()
    age_days = settings.engine.retention_days if days is None else days
    database = session.database()
    before = prune_run.instant_before(database, age_days)
    if dry_run:
        report = prune_run.preview(database, before)
    else:
        rewrite = partial(_rewrite, database) if vacuum and database.is_sqlite else None
        report = prune_run.run(database, before, rewrite=rewrite)
        session.audit("db prune", days=age_days, removed=report.counts)
    _print_report(report, age_days, is_dry_run=dry_run, as_json=as_json)


def _print_report(
    report: "PruneReport", age_days: float, *, is_dry_run: bool, as_json: bool
) -> None:
    from dataclasses import asdict

    from agent.cli.output import terminal

    assert report.kept is not None
    if as_json:
        more: dict[str, object] = {"kept": asdict(report.kept)}
        if is_dry_run:
            more["dry_run"] = True
        else:
            free = None if report.size is None else report.size.free_bytes
            more |= {"bytes_freed": report.bytes_freed, "free_bytes": free}
        terminal.print_json(report.counts | more)
        return
    what = ", ".join(
        f"{count:,} {_PRUNED.get(name, name)}" for name, count in report.counts.items()
    )
    done = "would remove" if is_dry_run else "removed"
    terminal.print_line(f"{done} tasks that ended more than {age_days:g} days ago: {what}")
    _print_kept(report.kept)
    if not is_dry_run:
        _print_space(report.size, report.bytes_freed or 0)


_PRUNED = {
    "request_keys": "idempotency keys",
    "triggers": "removed triggers",
    "memories": "forgotten memories",
    "versions": "unused versions of workflows",
}
"""Names for people, where they differ from the keys of `--json`."""


def _rewrite(database: "Database") -> None:
    """Rewrite a SQLite file under the daemon's lock, so that no daemon can start meanwhile."""
    from agent.daemon import database_lock
    from agent.store import free_space

    try:
        lock = database_lock.take_lock(database, "upkeep")
    except database_lock.AlreadyRunningError as error:
        raise CommandError(f"--vacuum: {error}; stop it first", Exit.REFUSED) from None
    try:
        free_space.rewrite(database)
    finally:
        if lock is not None:
            lock.release()


def _print_kept(kept: "Retained") -> None:
    from agent.cli.output.terminal import print_line

    if kept.tasks:
        print_line(
            f"kept {kept.tasks:,} tasks that ended before: parents, children, retries or forks still"
            " need them, or a process had them locked"
        )
    if kept.artifacts:
        print_line(
            f"kept {kept.artifacts:,} large values ({kept.artifact_bytes:,} bytes) without a"
            " reference: they are removed one day after the last write"
        )


def _print_space(size: "DiskUsage | None", freed: int) -> None:
    from agent.cli.output.terminal import print_line

    if size is None:
        print_line("PostgreSQL reuses the space through autovacuum")
        return
    print_line(f"freed {freed:,} bytes of disk; the database takes {size.file_bytes:,}")
    if size.free_bytes and not size.is_incremental:
        print_line(
            f"{size.free_bytes:,} more bytes are free inside the file and will be reused;"
            f" `{invocation.program()} db prune --vacuum` frees them while no agent runs"
        )


app.command("backups")(restore.backups)
app.command("restore")(restore.restore)
app.command("check")(restore.check)
