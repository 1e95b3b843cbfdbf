"""The server inside `agent up`: start, address, responses, stop."""

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cli import PATIENCE_SECONDS, Cli, api_address

pytestmark = pytest.mark.process

FLOW = "name: flow\nsteps: {one: {wait: {signal: go}}}\n"


def test_up_serves_the_api_and_stops_with_an_open_stream(tmp_path: Path) -> None:
    """The token is in the home directory; workflow files are known at once; SIGTERM stops it in time."""
    cli = Cli(tmp_path, AGENT_SERVER__PORT="0")
    cli.write("workflows/flow.yaml", FLOW)
    with cli.daemon() as process:
        token = (tmp_path / "data" / "token").read_text().strip()
        with httpx.Client(
            base_url=api_address(process),
            headers={"Authorization": f"Bearer {token}"},
            timeout=PATIENCE_SECONDS,
            trust_env=False,
        ) as client:
            listed = client.get("/api/v1/workflows").json()["workflows"]
            assert [entry["name"] for entry in listed] == ["flow"]
            created = client.post("/api/v1/workflows/flow/tasks").json()["id"]
            assert cli.task(created)["id"] == created
            ended = threading.Event()
            is_open = threading.Event()

            def read() -> None:
                with client.stream("GET", "/api/v1/events/stream") as stream:
                    for _ in stream.iter_lines():
                        is_open.set()
                ended.set()

            threading.Thread(target=read, daemon=True).start()
            assert is_open.wait(PATIENCE_SECONDS)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
            assert ended.wait(PATIENCE_SECONDS)
    assert cli.task(created)["status"] == "running"


def test_a_taken_port_does_not_stop_tasks(tmp_path: Path) -> None:
    """The daemon reports that the port is taken, and runs tasks."""
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        cli = Cli(tmp_path, AGENT_SERVER__PORT=str(occupied.getsockname()[1]))
        cli.write("flow.yaml", "name: quick\nsteps: {one: {wait: 1ms}}\n")
        with cli.daemon():
            assert cli("run", "flow.yaml", "--wait", "--json").json["status"] == "succeeded"
        assert "api.not_started" in (tmp_path / "daemon.log").read_text()


def test_an_unsafe_address_is_refused(tmp_path: Path) -> None:
    """`agent up` refuses an address that other machines can reach, without `allow_remote`."""
    cli = Cli(tmp_path, AGENT_SERVER__HOST="0.0.0.0")
    assert "allow_remote" in cli("up", code=2).err


def test_tokens_by_command(tmp_path: Path) -> None:
    """A token is printed once, listed without its text, and revoked."""
    cli = Cli(tmp_path)
    cli("init")
    made: Any = cli("token", "create", "phone", "--scope", "approve", "--json").json
    assert made["token"] not in (tmp_path / "data" / "tokens.json").read_text()
    listed = cli("token", "list", "--json")
    assert [entry["name"] for entry in listed.json] == ["phone"]
    assert made["token"] not in listed.out
    assert "already" in cli("token", "create", "phone", "--scope", "read", code=3).err
    assert "phone" in cli("token", "revoke", "phone").out
    assert "owner" in cli("token", "list").out


def test_the_server_is_loaded_only_where_it_runs(tmp_path: Path) -> None:
    """Other commands, `agent token` included, do not import FastAPI."""
    cli = Cli(tmp_path)
    program = (
        "import json, sys; from agent.cli.main import main\n"
        "sys.argv = ['agent', 'token', 'list']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(json.dumps([n for n in ('fastapi', 'uvicorn', 'starlette') if n in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []
