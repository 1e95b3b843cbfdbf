"""What the removal of old tasks takes and returns."""

from typing import Any, Final

from pydantic import Field

from agent.server.examples.identities import AT
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example

_PRUNED: Final[dict[str, Any]] = {
    "dry_run": True,
    "days": 30.0,
    "before": AT,
    "counts": {
        "tasks": 12,
        "firings": 40,
        "triggers": 0,
        "events": 3,
        "workers": 2,
        "artifacts": 1,
        "request_keys": 5,
        "memories": 0,
        "versions": 3,
    },
    "kept": {"tasks": 2, "artifacts": 0, "artifact_bytes": 0},
    "is_complete": True,
    "bytes_freed": None,
}


class PruneRequest(RequestDocument):
    """What to remove."""

    days: float | None = Field(
        default=None,
        ge=0,
        le=36_500,
        description="Tasks that ended more days ago; `engine.retention_days` if null.",
        examples=[30],
    )
    dry_run: bool = Field(
        default=True, description="Only count what would be removed. `false` removes it for good."
    )


class PruneCounts(ResponseDocument):
    """Rows by kind."""

    tasks: int = Field(description="with all that belongs to them")
    firings: int
    triggers: int = Field(description="that were removed before")
    events: int = Field(description="of no task")
    workers: int
    artifacts: int = Field(description="large values that nothing refers to")
    request_keys: int
    memories: int = Field(description="that were forgotten before")
    versions: int = Field(description="of workflows, replaced before and without a task")


class PruneKept(ResponseDocument):
    """What is old enough, or no longer used, and stays for now."""

    tasks: int = Field(description="that parents, children, retries or forks still need")
    artifacts: int = Field(description="large values without a reference, written within a day")
    artifact_bytes: int


class PruneDocument(ResponseDocument):
    """What was removed, or what would be."""

    model_config = with_example(_PRUNED)

    dry_run: bool = Field(description="whether nothing was removed")
    days: float
    before: Instant = Field(description="what ended before it is old")
    counts: PruneCounts
    kept: PruneKept | None = Field(description="null unless `is_complete`")
    is_complete: bool = Field(
        description="false: the time of one request was over; send it again for the rest"
    )
    bytes_freed: int | None = Field(description="disk space that SQLite returned; else null")
