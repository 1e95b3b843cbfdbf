"""Commands in processes that have loaded nothing but the command line.

    python -m tests.support.fresh_process < REQUESTS

forks before each command, so that one interpreter starts for all of them: what a command can do must not
depend on modules that other commands have loaded. Other tests run commands in processes that have the
whole program loaded (`fork_server`).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import agent.cli.main  # noqa: F401  (what every command has loaded)
from tests.support.fork_server import ROOT, redirect, run_program


def run_each(
    commands: list[list[str]], directory: Path, environment: dict[str, str]
) -> list[tuple[int, str]]:
    """Run commands, one after another; return the exit code of each, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.fresh_process"],
        input=json.dumps({"commands": commands, "directory": str(directory)}),
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return [(code, text) for code, text in json.loads(done.stdout)]


def _run_one(argv: list[str]) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile() as output:
        child = os.fork()
        if child == 0:
            redirect(0, os.devnull, os.O_RDONLY)
            for descriptor in (1, 2):
                redirect(descriptor, output.name, os.O_WRONLY | os.O_APPEND)
            # A command that follows a task for ever fails by this signal.
            signal.alarm(60)
            sys.argv = ["agent", *argv]
            status = run_program()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), Path(output.name).read_text("utf-8")


def main() -> None:
    """Read the commands, and print their results."""
    request = json.load(sys.stdin)
    os.chdir(request["directory"])
    results = [_run_one(argv) for argv in request["commands"]]
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
