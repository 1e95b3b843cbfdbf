"""`agent run`: start a workflow, and see it through where no agent does.

With an agent at work the task is handed to it through the database. Without one this process runs
it, holding the same lock that an agent would, until it ends or waits on a person.
"""

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from agent.cli import session
from agent.cli.errors import CommandError
from agent.cli.options import InputJsonOption, InputOption, JsonOption, WaitOption

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient
    from agent.config.settings import Settings
    from agent.store.db.database import Database
    from agent.tasks.rules.creation import Submission

PRIORITIES = ("high", "normal", "low")
_LOOK_SECONDS = 0.5


def run(
    workflow: Annotated[
        str, typer.Argument(metavar="FILE|NAME", help="A workflow file, or a known name.")
    ],
    given: InputOption = None,
    input_json: InputJsonOption = None,
    priority: Annotated[str | None, typer.Option("--priority", help="high, normal or low.")] = None,
    *,
    wait: WaitOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Only hand it over.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a workflow.

    A running agent takes it over; without one this command runs it to its end itself.
    """
    from agent.cli import inputs
    from agent.cli.output import task_view, terminal

    if wait and detach:
        raise CommandError("--wait and --detach contradict each other")
    if priority is not None and priority not in PRIORITIES:
        raise CommandError(f"there is no priority {priority!r}: high, normal or low")
    values, texts = inputs.given_inputs(given or [], input_json)
    with session.agent() as agent:
        task_id, name = agent.start(workflow, values, texts, priority)
        carrier = agent.carrier()
        if detach or (not wait and carrier == "daemon"):
            if as_json:
                terminal.print_json(agent.task(task_id))
            else:
                task_view.print_started(task_id, name, is_running=carrier is not None)
            return
        if not as_json:
            terminal.note(f"task {terminal.short(task_id)} of {name}")
        see_to_its_end(agent, task_id, as_json=as_json)


def tell_if_nobody_runs(agent: "AgentClient") -> None:
    """Say that what is unfinished will not go on by itself."""
    from agent.cli.output import terminal

    if agent.carrier() is None:
        terminal.note(
            f"no agent is running: `{terminal.program()} up` goes on with what is unfinished"
        )


def see_to_its_end(agent: "AgentClient", task_id: str, *, as_json: bool) -> NoReturn:
    """Follow a task until it ends or waits on a person, print how, and leave with that code."""
    from agent.cli.output import follow, task_view, terminal

    try:
        document = agent.see_through(task_id, is_quiet=as_json)
    except KeyboardInterrupt:
        terminal.note(
            f"stopped; task {terminal.short(task_id)} goes on where an agent runs:"
            f" {terminal.program()} up"
        )
        raise
    if as_json:
        terminal.print_json(document)
    else:
        task_view.print_ending(document)
    raise typer.Exit(int(follow.exit_code(document)))


def submission(
    settings: "Settings",
    workflow: str,
    values: dict[str, Any],
    texts: dict[str, str],
    priority: str | None = None,
) -> "Submission":
    """Return the task to start, its workflow and its inputs checked."""
    from agent import bootstrap
    from agent.tasks.submission import (
        StartableWorkflow,
        find_workflow,
        new_submission,
        recorded_workflow,
    )

    def recorded(name: str) -> StartableWorkflow | None:
        if not bootstrap.has_database(settings):
            return None
        with bootstrap.open_database(settings).connect("reader") as connection:
            return recorded_workflow(connection, name)

    return new_submission(
        find_workflow(workflow, settings.workflow_directory, recorded),
        steps_per_task=settings.engine.steps_per_task,
        trigger={"kind": "manual"},
        values=values,
        texts=texts,
        priority=priority,
    )


def close_to_others(settings: "Settings") -> None:
    """Refuse to run tasks where other users can change what is run, and say what was mended."""
    from agent.cli.output import terminal
    from agent.config import file_exposure

    try:
        told = file_exposure.close_to_others(settings)
    except ValueError as error:
        raise CommandError(f"trusted_users or trusted_groups in [agent]: {error}") from None
    for line in told:
        terminal.note(line)


class _HolderGoneError(Exception):
    """Whoever ran the tasks has ended."""


def see_through(
    settings: "Settings",
    database: "Database",
    agent: "AgentClient",
    task_id: str,
    *,
    is_quiet: bool,
) -> dict[str, Any]:
    """Return the task's document once it ended or waits on a person, running it if need be."""
    from agent.cli.output import follow
    from agent.daemon import daemon

    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    while True:
        try:
            lock = daemon.take_lock(database, "run")
        except daemon.AlreadyRunningError:
            lock = None
            is_own = False
        else:
            is_own = lock is not None or not _has_worker(database)
        try:
            if not is_own:
                beat = _noticing(database)
                return follow.follow(agent, task_id, is_quiet=is_quiet, beat=beat)
            close_to_others(settings)
            with daemon.InsideCommand(settings, database) as inside:
                return follow.follow(agent, task_id, is_quiet=is_quiet, beat=inside.check)
        except _HolderGoneError:
            continue
        finally:
            if lock is not None:
                lock.release()


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _has_worker(database: "Database") -> bool:
    from agent import bootstrap

    return bootstrap.holder_of(database) is not None


def _noticing(database: "Database") -> Callable[[], None]:
    """Return a check that raises when nobody runs the tasks any more."""
    last = time.monotonic()

    def check() -> None:
        nonlocal last
        if time.monotonic() - last > _LOOK_SECONDS:
            last = time.monotonic()
            if not _has_worker(database):
                raise _HolderGoneError

    return check
