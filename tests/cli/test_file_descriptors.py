"""A daemon with few file descriptors, and strangers that hold connections open."""

import socket
from contextlib import ExitStack

import pytest

from tests.support.cli import PROGRAM, Cli
from tests.support.free_port import free_port

LIMIT = 128
STEPS = """\
name: steps
steps:
  each:
    foreach: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    shell: {argv: [echo, "{{ item }}"]}
    retry: {max_attempts: 1}
"""


@pytest.mark.process
def test_idle_connections_do_not_fail_tasks(cli: Cli) -> None:
    """With twice as many idle connections as descriptors tasks succeed, and the log stays short."""
    limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *PROGRAM]
    cli("init")
    cli.write("workflows/steps.yaml", STEPS)
    port = free_port()
    cli.environment["AGENT_SERVER__PORT"] = str(port)
    cli.program = limited
    with cli.daemon(), ExitStack() as opened:
        cli.program = None
        for _ in range(2 * LIMIT):
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        done = cli("run", "steps", "--wait", "--json").json
        assert done["status"] == "succeeded", done
        assert {step["attempt"] for step in done["steps"]} == {1}
        assert len(cli("--server", f"http://127.0.0.1:{port}", "tasks", "--json").json) == 1
    lines = (cli.directory / "daemon.log").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if "descriptor" in line or "resource" in line]) <= 2
