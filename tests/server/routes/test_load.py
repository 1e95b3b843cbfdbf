"""The load of an agent: what runs, for how long, and where."""

import httpx

from agent.tasks.operator.operator import Operator
from tests.support.server import Running


def test_a_running_step_takes_a_slot(running: Running, client: httpx.Client) -> None:
    """Its step is listed, and the spend is that of `GET /budget`."""
    task_id = client.post("/api/v1/workflows/signalled/tasks").json()["id"]
    running.wait_for_task(client, task_id, "running")
    load = client.get("/api/v1/load").json()
    (worker,) = load["workers"]
    assert load["slots"] == {"taken": worker["running"], "total": 50}
    # It runs until its step waits for the signal.
    assert load["tasks"].get("running", 0) + load["tasks"].get("waiting", 0) >= 1
    assert load["spend"] == client.get("/api/v1/budget").json()
    assert load["queue"]["age_seconds"] >= 0
    Operator(running.database, running.database.clock).cancel(task_id)
