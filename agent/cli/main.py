"""The program `agent`: registers every command.

To add a command: a function in a module of `agent.cli.commands`, and a line here.
"""

import io
import os
import sys
from typing import Annotated

import typer

from agent.cli import invocation
from agent.cli.commands import (
    approvals,
    artifact,
    budget,
    chat,
    control,
    conversations,
    db,
    doctor,
    events,
    init,
    logs,
    memory,
    pairing,
    run,
    schedules,
    schema,
    tasks,
    token,
    triggers,
    up,
    validate,
    version,
    watch,
    watchers,
    workflows,
)
from agent.cli.errors import leave

app = typer.Typer(
    name="agent",
    no_args_is_help=True,
    add_completion=False,
    # Without these two typer loads rich for its help and for tracebacks.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        version.version()
        raise typer.Exit


@app.callback(help="Runs multi-step tasks, and resumes them after a crash or a restart.")
def _global(
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", help="The configuration file (default: config.toml)."
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="URL", help="A remote agent; AGENT_TOKEN holds its token."
        ),
    ] = None,
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    invocation.begin(config, server)


app.command("init")(init.init)
app.command("up")(up.up)
app.command("worker")(up.worker)
app.command("run")(run.run)
app.command("validate")(validate.validate)
app.command("schema")(schema.schema)
app.add_typer(workflows.app, name="workflows")
app.command("tasks")(tasks.tasks)
app.command("show")(tasks.show)
app.command("watch")(watch.watch)
app.command("logs")(logs.logs)
app.command("events")(events.events)
app.command("pause")(control.pause)
app.command("resume")(control.resume)
app.command("cancel")(control.cancel)
app.command("retry")(control.retry)
app.command("fork")(control.fork)
app.command("resolve")(control.resolve)
app.command("signal")(control.signal)
app.add_typer(schedules.app, name="schedules")
app.add_typer(watchers.app, name="watchers")
app.command("triggers")(triggers.triggers)
app.add_typer(memory.app, name="memory")
app.command("budget")(budget.budget)
app.command("artifact")(artifact.artifact)
app.command("approvals")(approvals.approvals)
app.command("approve")(approvals.approve)
app.command("deny")(approvals.deny)
app.command("answer")(approvals.answer)
app.command("defer")(approvals.defer)
app.command("chat")(chat.chat)
app.add_typer(conversations.app, name="conversations")
app.command("pair")(pairing.pair)
app.add_typer(pairing.app, name="pairings")
app.command("doctor")(doctor.doctor)
app.add_typer(db.app, name="db")
app.add_typer(token.app, name="token")
app.command("version")(version.version)


def main() -> None:
    """Run the command of the arguments; an error becomes one message and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character prints a question mark, not an error.
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="agent")
    except BrokenPipeError:
        # The reader of our output has closed the pipe; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("AGENT_TRACE"):
            raise
        leave(error, as_json="--json" in sys.argv)
