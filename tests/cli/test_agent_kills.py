"""A daemon that is killed in the middle of an agent's loop, again and again: nothing happens twice."""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.steps.process import processes
from agent.store.db.database import Database
from agent.tasks.read_models import task_documents, transcript
from tests.support.cli import ROOT, Cli, Process
from tests.support.model_servers import KEY, HangUp, Provider, Reply, Say, providing

MCP_SERVER = str(ROOT / "tests" / "support" / "plain_mcp_server.py")
TURNS = 10
WORKFLOW = """\
name: acts
steps:
  it:
    retry: {{max_attempts: 50, delay: 10ms, jitter: false}}
    agent:
      goal: act ten times
      max_turns: 20
      tools:
        world: {{http: {{urls: ["{url}"], methods: [post]}}, approve: never, timeout: 20s}}
"""
HANGS = """\
name: hangs
steps:
  it:
    agent:
      goal: |
        hang
        ```echo
        [{"tool_uses": [{"name": "it_hang", "arguments": {"n": 1}}]}]
        ```
      model: echo
      tools:
        it: {mcp: {server: plain, tools: [hang]}, approve: never, timeout: 10m}
"""
CONFIG = """\
[llm]
model = "it"
[models.it]
provider = "openai"
base_url = "{model_url}"
key = "env:KEY_OF_TESTS"
usd_per_million_in = 1.0
usd_per_million_out = 1.0
[http]
allow_private = ["127.0.0.1"]
"""


class World:
    """The model and the tool of one loop; each may take the daemon down in the middle of a call."""

    def __init__(self) -> None:
        self.daemon: Process | None = None
        self.port = 0
        self.did: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        """How often the model answered, by turn."""
        self.kills: set[str] = {"tool 2", "model 5", "tool 8 answered"}

    def kill_at(self, place: str) -> bool:
        """Take the daemon down, once at each place."""
        if place not in self.kills or self.daemon is None:
            return False
        self.kills.remove(place)
        os.kill(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait()
        return True

    def reply(self, request: dict[str, Any]) -> Reply:
        """Ask for the next use of the tool, until there were ten."""
        turn = sum(1 for one in request["messages"] if one["role"] == "assistant") + 1
        if self.kill_at(f"model {turn}"):
            return HangUp()
        self.answered[turn] += 1
        if turn > TURNS:
            return Say("done", tokens_in=10, tokens_out=5)
        wish = {"url": f"http://127.0.0.1:{self.port}/act", "json": {"n": turn}}
        return Say("", tokens_in=10, tokens_out=5, tools=[(f"use_{turn}", "world", wish)])


@contextmanager
def acting(world: World) -> Iterator[None]:
    """Run the tool's server for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            n = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["n"]
            world.did[n] += 1
            if world.kill_at(f"tool {n}"):
                return
            body = json.dumps({"did": n}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            world.kill_at(f"tool {n} answered")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    world.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def go_on(cli: Cli, world: World, task: str) -> bool:
    """Act as a person: resolve an unknown tool call by what the world saw. True at the end."""
    database = Database(f"sqlite:///{cli.directory}/data/agent.db")
    with database.connect("reader") as connection:
        found = task_documents.task_document(connection, task)
        calls = transcript.transcript(connection, task, "it")["calls"]
    if "unknown" in (found["steps"][0]["waiting_on"] or {}):
        lost = [call for call in calls if call["status"] == "unknown" and call["model"] is None]
        n = lost[-1]["request"]["arguments"]["json"]["n"]
        verdict = ["--done", "--output", json.dumps({"did": n})] if world.did[n] else ["--retry"]
        cli("resolve", task, "it", *verdict)
    time.sleep(0.05)
    return found["status"] in ("succeeded", "failed")


def model(cli: Cli, world: World, server: Provider) -> None:
    """Write what the daemon needs to know."""
    server.decide = world.reply
    cli.write("config.toml", CONFIG.format(model_url=server.openai_url))
    cli.write("workflows/acts.yaml", WORKFLOW.format(url=f"http://127.0.0.1:{world.port}/act"))
    cli.environment["KEY_OF_TESTS"] = KEY
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        cli.environment.pop(name, None)
    cli("init")


@pytest.mark.process
def test_a_loop_survives_its_daemon(cli: Cli) -> None:
    """No answer on record is asked for again, no use of a tool is repeated, the spend is exact."""
    world = World()
    with acting(world), providing() as server:
        model(cli, world, server)
        task, is_over = "", False
        while not is_over:
            with cli.daemon() as daemon:
                world.daemon = daemon
                task = task or cli("run", "acts", "--json").json["id"]
                while daemon.poll() is None and not is_over:
                    is_over = go_on(cli, world, task)
                world.daemon = None
    found = cli.task(task)
    assert found["output"] == {"it": "done"}, found["error"]
    assert world.kills == set()
    assert world.did == dict.fromkeys(range(1, TURNS + 1), 1)
    assert world.answered == dict.fromkeys(range(1, TURNS + 2), 1)
    calls = cli("show", task, "it", "--json").json["calls"]
    done = [call for call in calls if call["status"] == "succeeded"]
    assert [call["number"] for call in done] == list(range(1, 2 * TURNS + 2))
    spent = cli("budget", task, "--json").json
    assert (spent["tokens_in"], spent["tokens_out"]) == (10 * (TURNS + 1), 5 * (TURNS + 1))
    assert spent["usd"] == pytest.approx(15e-6 * (TURNS + 1))
    assert spent["usd_of_unknown_calls"] > 0, "the lost call of the model counts as spent"
    files = [path for path in (cli.directory / "data").rglob("*") if path.is_file()]
    files.append(cli.directory / "daemon.log")
    assert not any(KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.process
def test_a_server_that_outlives_its_daemon_is_ended(cli: Cli) -> None:
    """A program that hangs in a use does not notice that its agent was killed; the next one ends it."""
    did = cli.directory / "did"
    pid_file = cli.directory / "did.pid"
    lines = ["[mcp.plain]", f"command = {json.dumps(sys.executable)}"]
    lines += [
        f"args = {json.dumps(['-I', MCP_SERVER])}",
        f"env = {{ DID = {json.dumps(str(did))} }}",
    ]
    cli.write("config.toml", "\n".join(lines) + "\n")
    cli.write("hangs.yaml", HANGS)
    with cli.daemon() as daemon:
        task = cli("run", "hangs.yaml", "--json").json["id"]
        server = int(cli.wait_for(lambda: pid_file.exists() and pid_file.read_text()))
        started = processes.start_time(server)
        assert started is not None
        daemon.kill()
        daemon.wait()
    assert processes.is_running(server, started)
    try:
        with cli.daemon():
            cli.wait_for(lambda: cli.task(task)["steps"][0]["status"] == "waiting")
            assert not processes.is_running(server, started)
    finally:
        if processes.is_running(server, started):
            os.kill(server, signal.SIGKILL)
    assert did.read_text() == "hang\n"
