"""`agent queue work`: a worker that runs one command for each step it claims."""

from typing import Annotated

from agent.cli import invocation, session
from agent.cli.parameters import Argument, Option


def work(
    queue: Annotated[str, Argument(metavar="QUEUE", help="The queue to take steps from.")],
    command: Annotated[
        list[str],
        Argument(metavar="COMMAND...", help="The program and its arguments, after --."),
    ],
    concurrency: Annotated[
        int, Option("--concurrency", "-j", min=1, max=1000, help="Steps at the same time.")
    ] = 1,
    lease: Annotated[
        str | None,
        Option("--lease", metavar="DURATION", help="Of each claim; default: the step's own."),
    ] = None,
    grace: Annotated[
        str,
        Option(
            "--grace",
            metavar="DURATION",
            help="From SIGTERM to SIGKILL for a command; a stopped worker waits as long for it first.",
        ),
    ] = "10s",
    final_code: Annotated[
        list[int] | None,
        Option("--final-code", metavar="N", help="An exit code that is not retried."),
    ] = None,
    name: Annotated[
        str | None, Option("--name", metavar="NAME", help="This worker's name in lists.")
    ] = None,
    *,
    is_once: Annotated[bool, Option("--once", help="Wait for one step, and end.")] = False,
    is_drain: Annotated[bool, Option("--drain", help="End when no step waits.")] = False,
) -> None:
    """Run a command for each step of a queue, until Ctrl-C.

    The command reads the claim as JSON on standard input (the step's `with` is its key `input`). What it
    prints is the step's output: JSON, or a text. Its standard error goes to the step's log. An exit code
    other than 0 is a failure, which is retried as the step says. The lease is extended while it runs; if
    the step is cancelled, it gets SIGTERM, then SIGKILL.
    """
    import logging

    from agent.cli.errors import CommandError, Exit
    from agent.queue import QueueError, Worker, handler
    from agent.queue.command import CommandHandler

    grace_seconds = _seconds("--grace", grace)
    run = CommandHandler(command, grace_seconds=grace_seconds, final_codes=final_code or ())
    try:
        handle = handler(queue)(run)
    except ValueError as problem:
        raise CommandError(str(problem)) from None
    url, token = _address()
    logging.basicConfig(format="agent: %(message)s", level=logging.WARNING)
    if invocation.is_verbose:
        logging.getLogger("agent.queue").setLevel(logging.INFO)
    try:
        Worker(
            handle,
            server=url,
            token=token,
            concurrency=concurrency,
            lease_seconds=None if lease is None else _seconds("--lease", lease),
            grace_seconds=grace_seconds,
            end_seconds=grace_seconds + 5,
            name=name,
        ).run(limit=1 if is_once else None, until_empty=is_drain)
    except QueueError as error:
        refused = error.status is not None
        raise CommandError(str(error), Exit.REFUSED if refused else Exit.NO_DATABASE) from None


def _seconds(option: str, text: str) -> float:
    from agent.cli.errors import CommandError
    from agent.workflows.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise CommandError(f"{option} {text}: {error}") from None


def _address() -> tuple[str, str]:
    """Return the agent's address and a token: claims need its HTTP API, also on this machine."""
    from agent.cli.client import address
    from agent.cli.output import terminal

    if (server := invocation.server_url()) is not None:
        url, token, _ = address.remote_agent(server, session.any_settings(), terminal.note)
        return url, token
    settings = session.settings()
    return address.running_agent(settings), address.token(settings, is_here=True)
