"""`agent stop`: stops the running agent."""

import os
import signal
import time
from typing import TYPE_CHECKING, Annotated

from agent.cli import invocation, session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.store.db.database import Database

_EXTRA_SECONDS = 15.0
"""Beyond `engine.shutdown_seconds`: the agent ends itself 10 seconds after that in any case."""
_POLL_SECONDS = 0.05
_PROGRESS_SECONDS = 5.0
_KILL_SECONDS = 3.0
"""How long an agent may take after the second signal before it is killed."""


def stop(
    *,
    now: Annotated[
        bool,
        Option("--now", help="Do not wait for running steps; the next start rescues them."),
    ] = False,
    timeout: Annotated[
        float | None,
        Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="How long to wait; default: shutdown_seconds and 15 more.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the running agent, and wait until it has ended.

    Running steps may finish within `engine.shutdown_seconds`; the rest continues at the next start.
    The exit code is 0 when no agent runs any more, and 3 when one still does.
    """
    from agent.cli import other_agents
    from agent.cli.output import terminal

    session.require_person("stop it")
    settings = session.settings()
    database = session.database()
    process_id = _process_of(database)
    if process_id is None:
        _report(other_agents.no_agent(settings), None, as_json=as_json)
        return
    session.audit("stop", process=process_id)
    if timeout is None:
        timeout = settings.engine.shutdown_seconds + _EXTRA_SECONDS
    if not as_json:
        terminal.note(f"stopping the agent (process {process_id})")
    _send(process_id, signal.SIGTERM)
    if now:
        _end_now(process_id)
    if not _wait(process_id, timeout, is_quiet=as_json):
        raise CommandError(
            f"the agent (process {process_id}) still runs after {timeout:g} s: wait, or"
            f" `{invocation.program()} stop --now`",
            Exit.REFUSED,
        )
    _report("stopped", process_id, as_json=as_json)


def _report(message: str, process_id: int | None, *, as_json: bool) -> None:
    from agent.cli.output import terminal

    if as_json:
        terminal.print_json({"message": message, "process_id": process_id})
    else:
        terminal.print_line(message)


def _process_of(database: "Database") -> int | None:
    """Return the process of the agent; raise `CommandError` where it cannot be stopped from here."""
    from agent import bootstrap
    from agent.daemon.instance_file import running_instance

    lock = bootstrap.lock_of(database)
    if lock is None:
        # Many workers may run on PostgreSQL, some on other machines: ours has left its file here.
        instance = running_instance(session.settings().home)
        return None if instance is None else instance.process_id
    holder = lock.holder()
    if holder is None:
        return None
    if holder.role != "daemon":
        raise CommandError(
            f"no agent is running, but process {holder.process_id} uses the database"
            f" (`{invocation.program()} {holder.role}`)",
            Exit.REFUSED,
        )
    if not holder.process_id:
        raise CommandError(
            "an agent is running, and its process is not known: it was started under another path",
            Exit.REFUSED,
        )
    return holder.process_id


def _send(process_id: int, number: signal.Signals) -> None:
    try:
        os.kill(process_id, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise CommandError(
            f"the agent (process {process_id}) belongs to another user", Exit.REFUSED
        ) from None


def _end_now(process_id: int) -> None:
    """Tell it a second time, which ends it at once; kill it where it does not react."""
    from agent.cli.output import terminal

    _send(process_id, signal.SIGTERM)
    if not _wait(process_id, _KILL_SECONDS, is_quiet=True):
        terminal.note("it does not react: it is killed, and the next start continues its tasks")
        _send(process_id, signal.SIGKILL)


def _wait(process_id: int, seconds: float, *, is_quiet: bool) -> bool:
    """Wait until a process has ended; return whether it has."""
    from agent.cli.output import terminal
    from agent.steps.process.processes import start_time

    began = time.monotonic()
    report_at = began + _PROGRESS_SECONDS
    while start_time(process_id) is not None:
        now = time.monotonic()
        if now - began >= seconds:
            return False
        if now >= report_at and not is_quiet:
            report_at = now + _PROGRESS_SECONDS
            terminal.note(f"  its steps are finishing; {now - began:.0f} of {seconds:g} s")
        time.sleep(_POLL_SECONDS)
    return True
