"""Schemathesis against the API's own description: `make fuzz`, and a short run of it as a test.

It makes requests from what the description allows and from what it does not, follows what answers
name (a task that was created is paused, forked, looked at), and holds every answer against the
description: no 5xx, no status, media type or document that is not described, nothing let in without
a token.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from agent.server.access import failed_auth_limiter
from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.support.recorded_triggers import record_workflow
from tests.support.sample_workflows import ASKING, FAILING, GATED, QUICK, SIGNALLED
from tests.support.server import Running, wait_for

LEFT_OUT: Final = (
    # A valid request may still be refused for what it means: a workflow that does not compile, an
    # answer that does not fit its question.
    "positive_data_acceptance",
)
_TRIGGERED: Final = """\
name: triggered
on: {schedule: {id: hourly, cron: 0 * * * *}}
steps: {rest: {wait: 1ms}}
"""
_CONFIG: Final = """\
[parameters]
"path.task_id" = "{task}"
"path.approval_id" = "{approval}"
"path.trigger_id" = "{trigger}"
# The task waits for ever.
"query.wait" = 0

[[operations]]
# It never ends; tests of its own read it.
include-path = "/api/v1/events/stream"
enabled = false
"""


def fuzz(running: Running, directory: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run Schemathesis against a server, in a directory for its files."""
    for text in (QUICK, SIGNALLED, FAILING, GATED, ASKING):
        running.add_workflow(text)
    (trigger_id,) = record_workflow(running.database, _TRIGGERED)
    with running.client() as client:
        started = [
            client.post(f"/api/v1/workflows/{workflow}/tasks").raise_for_status().json()["id"]
            for workflow in ("quick", "gated", "signalled")
        ]
        approvals = wait_for(lambda: client.get("/api/v1/approvals").json()["approvals"])
        description = client.get("/api/v1/openapi.json").raise_for_status().json()
    _allow_null_as_no_body(description)
    (directory / "openapi.json").write_text(json.dumps(description), encoding="utf-8")
    (directory / "schemathesis.toml").write_text(
        _CONFIG.format(task=started[-1], approval=approvals[0]["id"], trigger=trigger_id),
        encoding="utf-8",
    )
    program = "import sys; from schemathesis.cli import schemathesis; schemathesis()"
    return subprocess.run(
        [
            sys.executable, "-c", program, "run", "openapi.json", "--url", running.server.url,
            "--header", f"Authorization: Bearer {running.token}", "--checks", "all",
            "--exclude-checks", ",".join(LEFT_OUT), "--request-timeout", "30", "--no-color",
            # A claim may wait for work as long as a request may take.
            "--exclude-operation-id", "claim_work",
            *options,
        ],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip


def _allow_null_as_no_body(description: dict[str, Any]) -> None:
    """Let a body that may be left out be null: the API accepts it, and the description does not say so."""
    for operations in description["paths"].values():
        for operation in operations.values():
            body = operation.get("requestBody", {"required": True})
            for media in () if body.get("required") else body["content"].values():
                if "$ref" in media["schema"]:
                    media["schema"] = {"anyOf": [media["schema"], {"type": "null"}]}


def main() -> int:
    """Run it for a while on its own database; return the exit status."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzz the HTTP API.")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="default: another each time")
    arguments = parser.parse_args()
    # Requests without a token are what is tested: none may be held back for the ones before.
    failed_auth_limiter.MAX_FAILURES = sys.maxsize  # type: ignore[misc]
    directory = Path(tempfile.mkdtemp(prefix="agent-fuzz-"))
    try:
        database = Database(f"sqlite:///{directory}/agent.db")
        migrate.upgrade(database)
        options = ["--max-time", str(arguments.seconds), "--max-examples", "1000"]
        if arguments.seed is not None:
            options += ["--seed", str(arguments.seed)]
        with Running(database, directory) as running:
            done = fuzz(running, directory, *options)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
