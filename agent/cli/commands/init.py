"""`agent init`: creates the files and the database of an agent."""

import os
import shlex
from pathlib import Path
from typing import Annotated

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

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
        Path | None,
        Argument(metavar="DIRECTORY", help="Where to create them.", show_default="here"),
    ] = None,
    example: Annotated[
        str | None,
        Option(
            "--example",
            metavar="EXAMPLE",
            help="Also copy an example: `agent examples` lists them.",
        ),
    ] = None,
    *,
    user: Annotated[
        bool,
        Option("--user", help="Your own agent, used wherever there is no other."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a configuration, a first workflow and the database.

    Files that exist are left unchanged. Workflow files begin with a line by which editors check and
    complete them.
    """
    from agent import bootstrap
    from agent.cli import example_files, schema_file
    from agent.cli.output import terminal
    from agent.config.default_file import default_text
    from agent.config.loader import DEFAULT_FILE, load

    session.require_local()
    chosen = None if example is None else example_files.find(example)
    if user:
        directory = _users_directory(directory)
    directory = directory or Path()
    # The agent refuses to start where other users can write its files.
    os.umask(os.umask(0) | 0o022)
    _note_one_above(directory)
    created: list[str] = []
    _write(directory / DEFAULT_FILE, default_text(), created)
    settings = load(directory / DEFAULT_FILE)
    workflows, schema = settings.workflow_directory, settings.base / schema_file.NAME
    _write(schema, schema_file.schema_text(), created)
    line = schema_file.modeline(schema, workflows)
    if chosen is not None:
        _copy_example(chosen, workflows, line, created)
    _write(workflows / "hello.yaml", line + STARTER, created)
    database = bootstrap.open_database(settings, create=True)
    if as_json:
        terminal.print_json({"made": created, "home": str(settings.home)})
        return
    for path in created:
        terminal.print_line(f"created {path}")
    where = database.path or "the configured PostgreSQL"
    terminal.print_line(f"the database is ready: {where}")
    enter = (
        "" if user or directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    )
    name = "hello -i name=you" if chosen is None else chosen.stem
    terminal.print_line(f"\ntry: {enter}agent run {name}\nor:  {enter}agent up")


def _users_directory(directory: Path | None) -> Path:
    from agent.cli.errors import CommandError
    from agent.config.discovery import user_file

    file = user_file(os.environ)
    if directory is not None or file is None:
        raise CommandError(
            "--user and DIRECTORY exclude each other" if directory else "there is no home directory"
        )
    return file.parent


def _note_one_above(directory: Path) -> None:
    """Say where another agent is used no longer, because a nearer one is found first."""
    from agent.cli.output import terminal
    from agent.config.discovery import DEFAULT_FILE, ConfigError, find

    if (directory / DEFAULT_FILE).exists():
        return
    start = directory.absolute()
    while not start.exists():
        start = start.parent
    try:
        place = find(None, {}, start)
    except ConfigError:
        return
    if place.base != directory.absolute() and place.how in ("here", "above"):
        existing = place.file or place.base
        terminal.note(f"{existing} is an agent too; here and below, the new one is used")


def _copy_example(example: Path, workflows: Path, first_line: str, created: list[str]) -> None:
    """Copy an example with the files that it needs, its children included."""
    from agent.cli import example_files

    for source in example_files.files_of(example):
        text = source.read_text(encoding="utf-8")
        target = workflows / source.relative_to(example.parent)
        _write(target, first_line + text if source.suffix == ".yaml" else text, created)


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
    created.append(str(path.absolute()))
