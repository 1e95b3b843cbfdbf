"""The entry point of the program `agent`."""

import gc
import io
import os
import sys


def main() -> None:
    """Run the command of the arguments; an error becomes one message and an exit code."""
    # A command loads no garbage: searching for it takes a tenth of the command's time. One that runs
    # for long still collects.
    gc.set_threshold(20_000, 20, 20)
    try:
        _main()
    finally:
        # At its end, Python would search it again.
        gc.freeze()


def _main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character prints a question mark, not an error.
            stream.reconfigure(errors="replace")
    try:
        try:
            if not _answers_at_once(sys.argv[1:]):
                _run(sys.argv[1:])
        finally:
            # Flush here: at its own end Python would complain about a closed pipe.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed the pipe; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get("AGENT_TRACE"):
            raise
        from agent.cli.errors import leave

        leave(error, as_json="--json" in sys.argv)


def _run(words: list[str]) -> None:
    from agent.cli import invocation, usual_arguments

    command = usual_arguments.command_of(words)
    if command is not None:
        # Global options come before the command: typer reads those lines.
        invocation.begin(None, None)
        command()
    else:
        from agent.cli.program import program

        program()(prog_name="agent")


def _answers_at_once(arguments: list[str]) -> bool:
    """Print the help or the version if nothing else was asked, without loading typer."""
    if arguments[:1] == ["__complete"]:
        from agent.cli import completion

        completion.main(arguments[1:])
    elif arguments in (["--help"], ["-h"], ["help"]):
        from agent.cli import front_page

        print(front_page.help_text(), end="", flush=True)
    elif arguments in (["version"], ["--version"]):
        from agent.cli import front_page

        print(front_page.version_line(), flush=True)
    else:
        return False
    return True
