"""What the routes of external workers and of snapshots take and return."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from agent.core.scopes import QUEUE_PATTERN
from agent.server.examples import work as work_examples
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("contains a lone surrogate, which is not valid Unicode") from None
    if "\0" in text:
        raise ValueError("contains a NUL character, which cannot be stored")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Queue = Annotated[str, Field(pattern=QUEUE_PATTERN, examples=["review"])]
Label = Annotated[Text, Field(min_length=1, max_length=200, examples=["plan"])]
ReasonRequest = Annotated[Text, Field(min_length=1, max_length=2000)]


class ClaimRequest(RequestDocument):
    """What a worker asks for."""

    queues: list[Queue] = Field(min_length=1, max_length=50, examples=[["review"]])
    worker: Text = Field(
        min_length=1, max_length=200, description="Its name, for people.", examples=["host:4711"]
    )
    wait: float = Field(
        default=0, ge=0, le=30, description="How many seconds to wait for work.", examples=[0]
    )
    limit: int = Field(default=1, ge=1, le=50, description="The most pieces of work.")
    client_token: Text | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Names this claim: its repetition gets the same leases.",
        examples=["9b1c7f0e"],
    )
    start: bool = Field(default=False, description="Begin with the claim, as `running` does.")
    lease: float | None = Field(
        default=None, ge=1, le=86_400, description="The lease in seconds; as the step says if null."
    )


class NextClaimRequest(ClaimRequest):
    """The claim of the next work, with the end of the last: one request and one commit for both.

    It does not wait for work. If the end is refused, or the answer is lost, repeat the claim by itself
    under its token: it may have got work.
    """

    client_token: Text = Field(
        min_length=1, max_length=200, description="As in `claim`.", examples=["9b1c7f0e"]
    )


class HeartbeatRequest(RequestDocument):
    """What a worker knows."""

    snapshot: str | None = Field(
        default=None,
        max_length=100,
        description="The newest snapshot of the task that it knows, null if it knows of none;"
        " `changed` names a newer one. Without this key it is not asked for.",
    )


class CheckpointRequest(RequestDocument):
    """A checkpoint."""

    value: Any = Field(examples=[{"page": 3}])


class LogRequest(RequestDocument):
    """A piece of a log."""

    text: Text = Field(min_length=1, max_length=100_000, examples=["page 3 of 9"])
    stream: Literal["log", "stdout", "stderr"] = "log"


class ArtifactRequest(RequestDocument):
    """A value to keep beside the step's output."""

    name: Label
    value: Any = Field(examples=[{"rows": [1, 2]}])


class NewSnapshot(RequestDocument):
    """A value to append to the task's context."""

    value: Any = Field(examples=[{"plan": ["read", "sum up"]}])
    label: Label | None = None


class AddSnapshotRequest(NewSnapshot):
    """A value to append to the task's context, by a call that may be repeated."""

    client_token: Text | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Names this call: its repetition appends nothing, and gets the same answer.",
        examples=["5d0a31c2"],
    )


class AppendSnapshotRequest(AddSnapshotRequest):
    """A value to append to a task's context."""

    parent: str | None = Field(
        default=None,
        max_length=100,
        description="The snapshot that it continues; the newest if null.",
    )


class CompleteRequest(RequestDocument):
    """The result of the work."""

    output: Any = Field(default=None, examples=[{"verdict": "fine"}])
    snapshot: NewSnapshot | None = None
    claim: NextClaimRequest | None = None


class FailRequest(RequestDocument):
    """Why the work failed."""

    message: Text = Field(min_length=1, max_length=10_000, examples=["the file is missing"])
    code: str = Field(default="failed", pattern="^[a-z][a-z0-9_]{0,63}$")
    retryable: bool = Field(default=True, description="False: another attempt is of no use.")
    delay: float | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="At least this many seconds until the next attempt.",
    )
    claim: NextClaimRequest | None = None


class ReleaseRequest(RequestDocument):
    """Why a worker gives its work back."""

    reason: ReasonRequest = Field(examples=["shutting down"])
    checkpoint: Any = Field(default=None, description="Saved for the next worker, unless null.")


class AskRequest(RequestDocument):
    """A question to a person; the next claim has the answer."""

    question: Text = Field(min_length=1, max_length=10_000, examples=["Which account?"])
    choices: list[Any] | None = Field(default=None, min_length=1, max_length=100)
    schema_: dict[str, Any] | None = Field(
        default=None, alias="schema", description="JSON Schema of the answer."
    )
    who: list[Text] | None = Field(
        default=None, max_length=50, description="Who may answer, as in `approval`."
    )
    expires: float | None = Field(
        default=None, gt=0, le=31_536_000, description="Seconds; then the step fails."
    )
    checkpoint: Any = Field(default=None, description="Saved for the next worker, unless null.")


class ResumeWorkRequest(RequestDocument):
    """How work goes on whose worker waits for a person."""

    value: Any = Field(default=None, description="The answer that the next claim carries.")
    reason: ReasonRequest | None = None


class RequeueRequest(RequestDocument):
    """How a dead letter goes on."""

    not_before: str | None = Field(
        default=None,
        max_length=100,
        description="A duration such as `2h`, or an ISO time.",
        examples=["2h"],
    )
    reason: ReasonRequest | None = None


class WorkDocument(ResponseDocument):
    """Work that a worker has a lease of."""

    lease_id: str = Field(description="names the lease in every further call")
    id: str = Field(description="names the work")
    queue: str
    state: Literal["leased", "running"]
    task: str
    workflow: str
    step: str
    parallel_index: int | None
    attempt: int
    max_attempts: int
    input: Any = Field(description="the step's `with`")
    checkpoint: Any = Field(description="what was saved last")
    answer: dict[str, Any] | None = Field(description="of a person, to the last `ask` or `block`")
    output_schema: dict[str, Any] | None
    idempotency_key: str | None = Field(
        description="of an effect: for the systems that the worker calls"
    )
    lease_seconds: float
    lease_expires_at: Instant
    start_by: Instant | None = Field(description="`running` must come before; null once it runs")
    run_by: Instant | None = Field(description="the work must end before")
    snapshot: str | None = Field(description="the newest snapshot of the task")


class ClaimedWork(ResponseDocument):
    """The work that a claim got; none if there was none in time."""

    model_config = with_example(work_examples.CLAIMED_WORK)

    work: list[WorkDocument]


class LeaseState(ResponseDocument):
    """What a worker does next."""

    model_config = with_example(work_examples.LEASE_STATE)

    action: Literal["continue", "pause", "cancel", "changed"]
    lease_expires_at: Instant | None
    snapshot: str | None = Field(description="a newer snapshot of the task, with `changed`")


class EndedLease(ResponseDocument):
    """What the end of a lease did."""

    model_config = with_example(work_examples.ENDED_LEASE)

    step: str = Field(description="the step's status")
    task: str
    is_late: bool = Field(
        description="the lease had expired, and the result has settled its own unknown effect"
    )
    approval: str | None = Field(description="the question that a person is asked")
    snapshot: str | None = Field(description="the snapshot that was appended")
    work: list[WorkDocument] | None = Field(
        default=None,
        description="the next work, where `claim` asked for it; null if that must be repeated",
    )


class KeptArtifact(ResponseDocument):
    """A value that was kept."""

    model_config = with_example(work_examples.KEPT_ARTIFACT)

    hash: str
    size: int
    name: str


class AppendedSnapshot(ResponseDocument):
    """A snapshot that was appended."""

    model_config = with_example(work_examples.APPENDED_SNAPSHOT)

    snapshot: str


class SnapshotDocument(ResponseDocument):
    """A value that was appended to a task's context."""

    model_config = with_example(work_examples.SNAPSHOT)

    id: str
    task: str
    step: str | None
    parent: str | None
    label: str | None
    value: Any
    by: str
    created_at: Instant


class SnapshotPage(ResponseDocument):
    """A page of snapshots, the oldest first."""

    model_config = with_example(work_examples.SNAPSHOTS)

    snapshots: list[SnapshotDocument]
    next: str | None = Field(description="`cursor` of the next page; null on the last page")
