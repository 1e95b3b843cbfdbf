"""An agent with steps for external workers, and workers of this process that handle them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from agent.queue import Worker
from tests.support.server import PATIENCE_SECONDS, Running, wait_for


class QueueBench:
    """Starts tasks of one step in a queue, and looks at what becomes of them."""

    def __init__(self, running: Running, client: httpx.Client) -> None:
        self.running = running
        self.client = client

    def start(self, queue: str, given: Any = None, **keys: Any) -> str:
        """Start a task whose only step waits in a queue; `keys` are of the step, `worker` of the kind."""
        kind = {"queue": queue, "with": {"value": given}, **keys.pop("worker", {})}
        step = {"worker": kind, "retry": {"max_attempts": 3, "delay": "10ms"}, **keys}
        name = f"flow-{queue}"
        self.running.add_workflow(
            json.dumps({"name": name, "steps": {"job": step}, "output": "{{ steps.job.output }}"})
        )
        answer = self.client.post(f"/api/v1/workflows/{name}/tasks", json={"input": {}})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def ended(self, task_id: str, status: str = "succeeded") -> dict[str, Any]:
        """Return a task once it has a status."""
        return self.running.wait_for_task(self.client, task_id, status)

    def step(self, task_id: str) -> dict[str, Any]:
        """Return the step of a task."""
        step: dict[str, Any] = self.client.get(f"/api/v1/tasks/{task_id}/steps/job").json()
        return step

    def log(self, task_id: str) -> str:
        """Return everything that the step wrote."""
        pieces = self.client.get(f"/api/v1/tasks/{task_id}/logs").json()["logs"]
        return "".join(piece["text"] for piece in pieces if piece["stream"] != "config")

    def question(self, task_id: str) -> dict[str, Any]:
        """Return the open question of a task."""

        def find() -> dict[str, Any] | None:
            found = self.client.get("/api/v1/approvals").json()["approvals"]
            return next((each for each in found if each["task"] == task_id), None)

        asked: dict[str, Any] = wait_for(find)
        return asked

    def queue(self, name: str) -> dict[str, Any]:
        """Return what is in a queue; nothing if it is not in use."""
        queues = self.client.get("/api/v1/work/queues").json()["queues"]
        return next((each for each in queues if each["queue"] == name), {"queued": 0})

    def worker(self, *handlers: Any, **options: Any) -> Worker:
        """Return a worker of this agent."""
        options.setdefault("server", self.running.server.url)
        options.setdefault("token", self.running.token)
        return Worker(*handlers, **options)

    def work(self, *handlers: Any, limit: int = 1, **options: Any) -> None:
        """Handle this many claims."""
        self.worker(*handlers, **options).run(limit=limit)

    @contextmanager
    def working(self, *handlers: Any, **options: Any) -> Iterator[Worker]:
        """Work beside the test for as long as the block lasts."""
        worker = self.worker(*handlers, **options)
        problems: list[BaseException] = []

        def run() -> None:
            try:
                worker.run()
            except BaseException as problem:
                problems.append(problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert problems == []
