"""`agent service`: the agent as a service of the user, by systemd or launchd."""

import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import invocation, session
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.cli.service.definition import ServiceManager

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run the agent as a service of systemd or launchd.",
)

NameOption = Annotated[
    str, Option("--name", metavar="NAME", help="The service's name, for a second agent.")
]


@app.command("install")
def install(
    *,
    name: NameOption = "agent",
    memory_mb: Annotated[
        int,
        Option(
            "--memory-mb",
            metavar="MB",
            min=128,
            help="The most memory, of steps' commands included.",
        ),
    ] = 2048,
    start: Annotated[
        bool, Option("--start/--no-start", help="Also start it now; or only at login.")
    ] = True,
    show: Annotated[bool, Option("--print", help="Print the file and change nothing.")] = False,
) -> None:
    """Install the agent as a service that starts at each login.

    It is started now, too. It runs with the configuration of this directory. Install again to change it.
    """
    from agent.cli.output import terminal
    from agent.cli.service import definition

    settings = session.settings()
    service = definition.define(settings, name, memory_mb)
    manager = _manager(is_printing=show)
    if show:
        typer.echo(manager.text(service), nl=False)
        return
    manager.install(service, is_started=start)
    session.audit("service install", subject=name)
    terminal.print_line(f"installed {manager.file(name)}" + (" and started it" if start else ""))
    program = invocation.program()
    terminal.print_line(
        f"`{program} service status` and `{program} service logs` show it;"
        " `loginctl enable-linger` lets it run while you are not logged in"
    )
    _note_environment()


@app.command("status")
def status(*, name: NameOption = "agent", as_json: JsonOption = False) -> None:
    """Show whether the service runs."""
    from agent.cli.output import terminal

    manager = _manager()
    _require_installed(manager, name)
    state = manager.state(name)
    if as_json:
        terminal.print_json({"name": name, "file": str(manager.file(name)), **state})
        return
    terminal.print_line(f"{name}: {manager.file(name)}")
    terminal.print_table(("", ""), list(state.items()))


@app.command("logs")
def logs(
    *,
    name: NameOption = "agent",
    lines: Annotated[int, Option("--tail", "-n", min=0, help="The last lines.")] = 100,
    follow: Annotated[bool, Option("--follow", "-f", help="Print new lines too.")] = False,
) -> None:
    """Print the service's log."""
    from agent.cli.errors import CommandError, Exit

    settings = session.settings()
    log_file = (settings.home / f"{name}.log").absolute()
    manager = _manager()
    _require_installed(manager, name)
    command = manager.logs_command(name, log_file, lines, is_following=follow)
    try:
        completed = subprocess.run(command, check=False)
    except FileNotFoundError:
        raise CommandError(f"{command[0]} is not installed here", Exit.REFUSED) from None
    except KeyboardInterrupt:
        return
    raise SystemExit(completed.returncode)


@app.command("uninstall")
def uninstall(*, name: NameOption = "agent") -> None:
    """Stop the service and remove its file.

    Tasks and configuration stay.
    """
    from agent.cli.errors import CommandError, Exit
    from agent.cli.output import terminal

    manager = _manager()
    file = manager.file(name)
    if not file.is_file():
        raise CommandError(f"there is no service {name!r}", Exit.REFUSED)
    manager.uninstall(name)
    session.audit("service uninstall", subject=name)
    terminal.print_line(f"removed {file}")


def _manager(*, is_printing: bool = False) -> "ServiceManager":
    from agent.cli.service import definition

    session.require_local()
    if not is_printing:
        session.require_person("manage services")
    return definition.manager_of()


def _require_installed(manager: "ServiceManager", name: str) -> None:
    from agent.cli.errors import CommandError, Exit

    if not manager.file(name).is_file():
        raise CommandError(
            f"there is no service {name!r}: `agent service install` installs it", Exit.REFUSED
        )


def _note_environment() -> None:
    """Name the settings of this terminal that the service does not have."""
    import os

    from agent.cli.output import terminal

    names = sorted(name for name in os.environ if name.startswith("AGENT_"))
    if names:
        terminal.note(
            f"these variables of your terminal are not part of the service: {', '.join(names)};"
            " write them into the configuration, or into .env beside it"
        )
