"""What the trigger routes take and return."""

from typing import Any

from pydantic import Field

from agent.server.examples import triggers as trigger_examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example
from agent.triggers.commands.backfill import MOST, MOST_EVER

_TIME = "A duration such as `2h`, or an ISO time; without an offset it is in the trigger's zone"


class PauseTriggerRequest(RequestDocument):
    """Until when a trigger is paused, and why."""

    until: str | None = Field(
        default=None, max_length=100, description=f"{_TIME}.", examples=["2h"]
    )
    reason: str | None = Field(default=None, max_length=1000, examples=["holidays"])


class ResumeTriggerRequest(RequestDocument):
    """What becomes of what came in the pause."""

    catch_up: bool = Field(
        default=False, description="Start what came meanwhile; otherwise it is skipped."
    )


class BackfillRequest(RequestDocument):
    """A span of the past; both ends are included."""

    first: str = Field(
        alias="from",
        max_length=100,
        description=f"{_TIME}. A duration counts back from now.",
        examples=["2026-03-01"],
    )
    last: str | None = Field(
        default=None,
        alias="to",
        max_length=100,
        description="The same; now by default.",
        examples=["2026-03-08T12:00:00Z"],
    )
    most: int | None = Field(
        default=None, ge=1, le=MOST_EVER, description=f"The maximum of runs; {MOST} by default."
    )
    dry_run: bool = Field(default=False, description="Return the instants, and run nothing.")


class FiringDocument(ResponseDocument):
    """What became of one instant or item, or of a range of instants."""

    key: str = Field(description="the instant in UTC, or the key of the item")
    status: str = Field(description="started, late, queued, skipped, missed or baseline")
    reason: str | None
    nominal_at: Instant | None
    due_at: Instant | None
    until_at: Instant | None = Field(description="of a range: its last instant")
    count: int | None = Field(description="of a range: how many instants it has, at least")
    task: str | None
    recorded_at: Instant


class TriggerSummary(ResponseDocument):
    """A schedule or a watcher; a watcher also has `source`, `polls`, `failures` and `last_error`.

    With `failures` 0, `last_error` is what the last good poll could not read.
    """

    model_config = with_example(trigger_examples.TRIGGER_SUMMARY)

    id: str = Field(description="WORKFLOW:NAME", examples=["report:daily"])
    workflow: str
    version: int = Field(description="the version of the workflow that its tasks run")
    name: str
    kind: str = Field(description="schedule or watch")
    status: str = Field(description="active, paused, broken or removed")
    pause_reason: str | None
    paused_until: Instant | None
    problem: str | None = Field(description="what is wrong with its definition")
    timezone: str
    next_at: Instant | None = Field(description="its next instant, or its next poll")
    when: str = Field(description="its timing in one line")
    recent: list[FiringDocument] = Field(description="the latest ten, the newest first")


class TriggerDocument(TriggerSummary):
    """Everything about a schedule or a watcher."""

    model_config = with_example(trigger_examples.TRIGGER)

    definition: dict[str, Any]
    upcoming: list[Instant]
    queued: int = Field(description="runs that wait for their time or for other tasks")
    created_at: Instant
    removed_at: Instant | None
    resumed_at: Instant | None
    firings: list[FiringDocument]


class TriggerList(ResponseDocument):
    """A page of triggers."""

    model_config = with_example(trigger_examples.TRIGGERS)

    triggers: list[TriggerSummary]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")


class FiringPage(ResponseDocument):
    """A page of firings, the newest first."""

    model_config = with_example(trigger_examples.FIRINGS)

    firings: list[FiringDocument]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")


class TriggerAnswer(ResponseDocument):
    """The result of a command on a trigger."""

    model_config = with_example(trigger_examples.TRIGGER_COMMAND)

    changed: bool
    message: str
    trigger_id: str
    tasks: list[str] = Field(description="tasks that it started")
    instants: list[Instant] = Field(description="instants that it skipped or backfills")


class CheckedItem(ResponseDocument):
    """A new item, and what would become of it."""

    key: str
    fate: str = Field(description="started, queued, skipped or baseline")
    reason: str | None
    item: dict[str, Any]


class SampleItem(ResponseDocument):
    """An item as templates see it."""

    key: str
    item: dict[str, Any]


class TriggerCheck(ResponseDocument):
    """What a poll found; nothing of it was recorded."""

    model_config = with_example(trigger_examples.TRIGGER_CHECK)

    id: str
    source: str
    found: int
    known: int = Field(description="items that have their fate already")
    status: str = Field(
        description="of the watcher: the poll after a plain resume of a `paused` one skips its items"
    )
    is_first: bool = Field(description="whether it would be the first poll")
    would: list[CheckedItem]
    passed_over: str | None = Field(description="what the poll could not read")
    sample: SampleItem | None = Field(
        description="the newest item that the source has, known or not: what a template can use"
    )
