"""`agent db`: the database's own upkeep."""

import math
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Upgrade, back up and prune the database."
)


@app.command("upgrade")
def upgrade(*, as_json: JsonOption = False) -> None:
    """Bring the database to this program's schema, or make it."""
    from agent import app as root
    from agent.cli import terminal
    from agent.store import schema

    root.open_database(session.settings(), create=True)
    if as_json:
        terminal.print_json({"schema": schema.HEAD})
    else:
        terminal.say(f"the database has schema {schema.HEAD}")


@app.command("backup")
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; must not exist.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Write a consistent copy, also while an agent runs."""
    from agent.cli import terminal
    from agent.store import upkeep

    database = session.existing_database()
    if target.exists():
        raise CommandError(f"{target}: there is already something here", Exit.REFUSED)
    if not target.absolute().parent.is_dir():
        raise CommandError(f"{target.absolute().parent}: there is no such directory")
    upkeep.backup(database, target)
    size = target.stat().st_size
    if as_json:
        terminal.print_json({"file": str(target), "bytes": size})
    else:
        terminal.say(f"wrote {target} ({size:,} bytes)")


@app.command("prune")
def prune(
    days: Annotated[
        float | None,
        typer.Option("--days", min=0, help="Ended longer ago (default: retention_days)."),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Remove tasks that ended long ago, with all their records."""
    from agent.cli import terminal
    from agent.clock import SECOND
    from agent.store import upkeep

    if days is not None and not math.isfinite(days):
        raise CommandError(f"--days {days}: give a number of days")
    settings = session.settings()
    age_days = settings.engine.retention_days if days is None else days
    database = session.existing_database()
    before = database.clock.now() - int(age_days * 86_400 * SECOND)
    with database.connect("writer") as connection:
        counts = upkeep.prune(connection, before)
    session.audit("db prune", days=age_days, **counts)
    if as_json:
        terminal.print_json(counts)
    else:
        what = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        terminal.say(f"removed what ended more than {age_days:g} days ago: {what}")
