"""A real server on loopback beside a real worker, as the daemon runs them."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from agent.bootstrap import build_worker
from agent.config.execution import EngineSettings, StepSettings
from agent.config.settings import ServerSettings, Settings
from agent.mcp.http_endpoint import PATH, HttpEndpoint
from agent.server.server_thread import Server
from agent.store.db.database import Database
from agent.store.engine import workflow_versions
from agent.workflows.compile.compiler import compile_text

PATIENCE_SECONDS = 60.0
"""A generous timeout, for slow and busy machines."""


class Running:
    """A worker and a server, each with its own loop, for the duration of a block."""

    def __init__(
        self, database: Database, home: Path, steps: StepSettings | None = None, **server: Any
    ) -> None:
        self.database = database
        self.settings = Settings(
            base=home,
            engine=EngineSettings(poll_seconds=0.2, shutdown_seconds=0.5),
            server=ServerSettings(**{"port": 0, **server}),
            steps=steps or StepSettings(),
        )
        self.home = self.settings.home
        self._is_ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="daemon", daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        assert self._is_ready.wait(PATIENCE_SECONDS)
        if self._error is not None:
            raise self._error
        assert self.server.wait_until_ready(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End both, as SIGTERM does."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _stop(self) -> None:
        self.server.stop()
        self.worker.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.worker = build_worker(self.settings, self.database)
        endpoints = {PATH: HttpEndpoint}
        self.server = Server(self.settings, self.database, self.worker, endpoints=endpoints)
        self.server.start()
        self._is_ready.set()
        try:
            await self.worker.run()
        finally:
            self.server.stop()
            await self.server.closed()

    @property
    def token(self) -> str:
        """The owner's token."""
        return self.server.tokens.owner_file.read_text(encoding="utf-8").strip()

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        """Return a client with a token, the owner's unless another is given; "" for none."""
        sent_token = self.token if token is None else token
        if sent_token:
            headers["Authorization"] = f"Bearer {sent_token}"
        return httpx.Client(
            base_url=self.server.url,
            headers=headers,
            timeout=PATIENCE_SECONDS,
            trust_env=False,
            # There is no TLS on loopback, and reading the certificates takes a while.
            verify=False,
        )

    def connected(self) -> socket.socket:
        """Return a connection on which nothing has been sent yet."""
        host, port = self.server.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)

    def token_with(self, *scopes: str) -> str:
        """Make a token with just these scopes."""
        name = "-".join(scopes)
        if any(entry["name"] == name for entry in self.server.tokens.listed()):
            self.server.tokens.revoke(name)
        return self.server.tokens.create(name, scopes, None)

    def add_workflow(self, text: str, path: str | None = None) -> None:
        """Put a workflow on record, as from a file if a path is given."""
        graph = compile_text(text.encode(), "test.yaml")
        with self.database.connect("writer") as connection, connection.transaction():
            workflow_versions.register(
                connection,
                graph.name,
                graph.hash,
                graph.text,
                text,
                path,
                self.database.clock.now(),
            )

    def wait_for_task(self, client: httpx.Client, task_id: str, status: str) -> dict[str, Any]:
        """Return a task's document once it has a status."""

        def poll() -> dict[str, Any] | None:
            task: dict[str, Any] = client.get(f"/api/v1/tasks/{task_id}").json()
            return task if task["status"] == status else None

        done: dict[str, Any] = wait_for(poll)
        return done


def wait_for(condition: Callable[[], Any]) -> Any:
    """Return the condition's first true value; fail after a timeout."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("what should have happened did not")


def read_until_closed(client: socket.socket) -> bytes:
    """Read until the other side closes."""
    received = b""
    try:
        while piece := client.recv(65_536):
            received += piece
    except ConnectionResetError:
        pass
    return received
