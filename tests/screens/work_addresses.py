"""The addresses of the pages of tasks, workflows, triggers, spend, health and events."""

from tests.support.sample_dashboard import Sample
from tests.support.sample_work import fill_work


def work_addresses(sample: Sample) -> dict[str, str]:
    """Fill what these pages show, and return their addresses by the names of their pictures."""
    fill_work(sample)
    tasks = sample.tasks
    return {
        "task": f"/tasks/{tasks['pay-invoice']}",
        "task-failed": f"/tasks/{tasks['triage']}",
        "task-large": f"/tasks/{tasks['nightly-import']}",
        "task-paused": f"/tasks/{tasks['weekly-report']}",
        "task-running": f"/tasks/{tasks['index-photos']}",
        "step": f"/tasks/{tasks['triage']}/steps/read",
        "log": f"/tasks/{tasks['triage']}/steps/read/log",
        "step-group": f"/tasks/{tasks['triage']}/steps/lines",
        "step-conversation": f"/tasks/{tasks['tidy-downloads']}/steps/move",
        "fork": f"/tasks/{tasks['pay-invoice']}/fork?from=pay",
        "workflows": "/workflows",
        "workflow": "/workflows/pay-invoice",
        "workflow-difference": "/workflows/pay-invoice?version=2&against=1",
        "triggers": "/triggers",
        "schedule": "/triggers/backup%3Anightly?from=3d",
        "watcher": "/triggers/read-news%3Afeed",
        "queues": "/queues",
        "spend": "/spend",
        "health": "/health",
        "events": "/events",
    }
