"""`traceparent` over HTTP: in with a submission, out with a webhook's notification."""

from pathlib import Path

import httpx
import pytest

from agent.channels.channel import Notification
from agent.channels.webhook import Webhook
from agent.config.channels import WebhookSettings
from agent.config.operation import TelemetrySettings
from agent.core.clock import Clock
from agent.store.db.database import Database
from agent.telemetry.trace_context import trace_of
from tests.support.otlp_receiver import receiving
from tests.support.sample_workflows import QUICK
from tests.support.server import Running

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_task_of_the_api_joins_the_callers_trace(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """Its attempts have the caller's trace; without a valid header it has a trace of its own."""
    with receiving() as receiver:
        running = Running(sqlite_database, tmp_path)
        running.settings = running.settings.model_copy(
            update={"telemetry": TelemetrySettings(endpoint=receiver.url)}
        )
        with running, running.client() as client:
            running.add_workflow(QUICK)
            tasks = {}
            for header in (CALLER, "nonsense"):
                tasks[header] = client.post(
                    "/api/v1/workflows/quick/tasks", headers={"traceparent": header}
                ).json()["id"]
                running.wait_for_task(client, tasks[header], "succeeded")
            documents = {
                header: client.get(f"/api/v1/tasks/{task_id}").json()
                for header, task_id in tasks.items()
            }
        spans = running.worker.services.spans
        assert spans is not None
        spans.close()
        traces = {span.attributes["agent.task.id"]: span.trace_id for span in receiver.spans}
    assert traces[tasks[CALLER]] == CALLER.split("-")[1]
    own = trace_of(tasks["nonsense"], None).root.trace_id
    assert traces[tasks["nonsense"]] == f"{own:032x}"
    assert documents[CALLER]["trigger"]["traceparent"] == CALLER
    assert "traceparent" not in documents["nonsense"]["trigger"]


def test_without_traces_the_header_is_not_recorded(running: Running, client: httpx.Client) -> None:
    """Nothing is kept that has no use."""
    created = client.post("/api/v1/workflows/quick/tasks", headers={"traceparent": CALLER}).json()
    document = running.wait_for_task(client, created["id"], "succeeded")
    assert "traceparent" not in document["trigger"]


@pytest.mark.parametrize("ratio", [None, 1.0])
def test_a_webhook_carries_the_trace_of_its_task(ratio: float | None) -> None:
    """The receiver can find the task in its own traces."""
    webhook = Webhook(WebhookSettings(), b"k" * 32, Clock(), ratio)
    task = {"id": "0199", "workflow": "quick"}
    about = Notification("1", "task.failed", 1, None, task, started_by={"traceparent": CALLER})
    headers = webhook._trace(about)
    if ratio is None:
        assert headers == {}
    else:
        assert headers["traceparent"].split("-")[1] == CALLER.split("-")[1]
    assert webhook._trace(Notification("2", "disk.low", 1, None)) == {}
