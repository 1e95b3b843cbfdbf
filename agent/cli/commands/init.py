"""`agent init`: creates the files and the database of an agent."""

import os
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import session
from agent.cli.options import JsonOption

STARTER = """\
# Try it: agent run hello -i name=you
name: hello
description: A greeting and the time, side by side, and then both in one sentence.
inputs:
  name: {type: string, default: world}
steps:
  greet:
    shell: {argv: [echo, "hello, {{ inputs.name }}"], effect: none}
  look:
    shell: {argv: [date, "+%A, %H:%M"], effect: none}
  tell:
    depends_on: [greet, look]
    shell:
      argv: [echo, "{{ steps.greet.output.stdout | trim }} - it is {{ steps.look.output.stdout | trim }}"]
      effect: none
output: "{{ steps.tell.output.stdout | trim }}"
"""


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where to create them.", show_default="here")
    ] = Path(),
    *,
    as_json: JsonOption = False,
) -> None:
    """Create a configuration, a first workflow and the database.

    Files that exist are left unchanged.
    """
    from agent import bootstrap
    from agent.cli.output import terminal
    from agent.config.default_file import default_text
    from agent.config.loader import DEFAULT_FILE, load

    session.require_local()
    # The agent refuses to start where other users can write its files.
    os.umask(os.umask(0) | 0o022)
    created: list[str] = []
    _write(directory / DEFAULT_FILE, default_text(), created)
    settings = load(directory / DEFAULT_FILE)
    _write(settings.workflow_directory / "hello.yaml", STARTER, created)
    database = bootstrap.open_database(settings, create=True)
    if as_json:
        terminal.print_json({"made": created, "home": str(settings.home)})
        return
    for path in created:
        terminal.print_line(f"created {path}")
    where = database.path or "the configured PostgreSQL"
    terminal.print_line(f"the database is ready: {where}")
    enter = "" if directory.resolve() == Path.cwd() else f"cd {directory} && "
    terminal.print_line(f"\ntry: {enter}agent run hello -i name=you\nor:  {enter}agent up")


def _write(path: Path, text: str, created: list[str]) -> None:
    """Write a file unless it exists."""
    from agent.cli.errors import CommandError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        if path.parent.is_dir():
            return
        raise CommandError(f"{path.parent}: this is not a directory") from None
    except OSError as error:
        raise CommandError(f"{path} cannot be created: {error.strerror}") from None
    try:
        with file:
            file.write(text)
    except OSError as error:
        # The next `agent init` would keep an incomplete file.
        path.unlink()
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None
    created.append(str(path))
