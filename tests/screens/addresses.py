"""The addresses of all pages, with the sample's ids in them."""

from tests.screens.work_addresses import work_addresses
from tests.support.sample_dashboard import Sample, question_of


def addresses(sample: Sample) -> dict[str, str]:
    """Return an address for every page, by the name of its picture."""
    with sample.running.client() as client:
        asked = question_of(client, sample.tasks["pay-invoice"])
    return {
        "inbox": "/",
        "question": f"/questions/{asked['id']}",
        "tasks": "/tasks",
        "tasks-failed": "/tasks?activity=failed",
        "tasks-since": "/tasks?since=1h",
        "tasks-none": "/tasks?workflow=nothing",
        "bulk": f"/tasks/bulk?do=cancel&task={sample.tasks['index-photos']}"
        f"&task={sample.tasks['tidy-downloads']}",
        "missing": "/questions/none",
        **work_addresses(sample),
    }
