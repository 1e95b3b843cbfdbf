"""Real agents on one database, and the client that uses their HTTP API."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tests.support.free_port import free_port

ROOT: Final = Path(__file__).parent.parent.parent
PATIENCE_SECONDS: Final = 120.0
"""For what surely happens, on a machine that is slow and busy."""
LEASE_SECONDS: Final = 2.0
SEND_SECONDS: Final = 1.5
CALL_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 4.0
"""A stopped agent does not refuse connections: the client has to give up."""
_SETTINGS: Final = {
    "AGENT_ENGINE__LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "AGENT_ENGINE__SLOTS": "8",
    "AGENT_ENGINE__SOLO_SECONDS": "1",
    "AGENT_ENGINE__SHUTDOWN_SECONDS": "2",
    # An unknown effect is decided once its time to be sent and answered is over.
    "AGENT_STEPS__SEND_WINDOW_SECONDS": f"{SEND_SECONDS:g}",
    "AGENT_STEPS__CALL_SECONDS": f"{CALL_SECONDS:g}",
}


class UnavailableError(Exception):
    """No agent answers, or it cannot at the moment: ask again."""


class Household:
    """The processes of one database: `agent up`, and on PostgreSQL workers beside it."""

    def __init__(self, directory: Path, database_url: str | None, workers: int) -> None:
        self.directory = directory
        self.port = free_port()
        self._wanted = ["up", *["worker"] * workers]
        self.processes: list[subprocess.Popen[bytes]] = []
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("AGENT_")
        }
        self._environment = inherited | _SETTINGS | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        self._environment["AGENT_SERVER__PORT"] = str(self.port)
        if database_url is not None:
            self._environment["AGENT_DATABASE__URL"] = database_url
        (directory / "config.toml").write_text(
            '[http]\nallow_private = ["127.0.0.1"]\n[steps]\nattempt_seconds = 60.0\n'
        )

    def start_missing(self) -> None:
        """Start what is not running; how far it has come is unknown on return."""
        for number, command in enumerate(self._wanted):
            if number == len(self.processes):
                self.processes.append(self._start(command))
            elif self.processes[number].poll() is not None:
                self.processes[number] = self._start(command)

    def wait_until_ready(self) -> None:
        """Wait until the API answers."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}/readyz", timeout=_ANSWER_SECONDS
                ):
                    return
            except (OSError, http.client.HTTPException) as error:
                self.start_missing()
                if time.monotonic() > give_up:
                    raise TimeoutError(f"no agent answers: {error}\n{self.log()}") from error
                time.sleep(0.05)

    def close(self) -> None:
        """End whatever is left."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(PATIENCE_SECONDS)

    def log(self) -> str:
        """Return the end of what the agents logged."""
        return (self.directory / "agents.log").read_text(errors="replace")[-3000:]

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        with (self.directory / "agents.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agent.cli", command],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


class Api:
    """The agent as a program sees it."""

    def __init__(self, household: Household) -> None:
        self._base = f"http://127.0.0.1:{household.port}/api/v1"
        self._token_file = household.directory / "data" / "token"

    def get(self, path: str) -> Any:
        """Read a document; None if there is no such thing."""
        try:
            return self._ask("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise UnavailableError(f"GET {path}: {error.code}") from error

    def start(self, workflow: str, ticket: str) -> str:
        """Start a task under its ticket as key; return its id once it is acknowledged."""
        headers = {"Idempotency-Key": ticket}
        body = {"input": {"ticket": ticket}}
        try:
            return str(self._ask("POST", f"/workflows/{workflow}/tasks", body, headers)["id"])
        except urllib.error.HTTPError as error:
            # At first the workflows may not be on record yet.
            raise UnavailableError(f"start {workflow}: {error.code}") from error

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Send a command; one that is no longer possible was decided before."""
        try:
            self._ask("POST", path, body)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409):
                raise UnavailableError(f"POST {path}: {error.code}") from error

    def all_tasks(self) -> list[dict[str, Any]]:
        """Return a short document of every task."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.get(f"/tasks?limit=100{cursor}")
            found += page["tasks"]
            if page["next"] is None:
                return found
            cursor = f"&cursor={quote(page['next'])}"

    def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        try:
            token = self._token_file.read_text().strip()
            request = urllib.request.Request(
                self._base + path,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                    **(headers or {}),
                },
            )
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"{method} {path}: {error!r}") from error
        return json.loads(text) if text else None


def patiently(
    act: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS, pause: float = 0.1
) -> Any:
    """Do something until the agent answers; fail when it does not within the time."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return act()
        except UnavailableError as error:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{what}: {error}") from error
            time.sleep(pause)
