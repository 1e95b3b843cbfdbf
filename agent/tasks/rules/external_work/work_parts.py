"""The calls of external workers, as parts of a commit, and their results.

`WorkClaim` asks for work; a `LeaseCall` is any request of the worker that holds a lease. Both are applied
by `work_claims` and `lease_calls` under the locks of the tasks. A part never fails a commit: what cannot
be done is an answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from agent.core.ids import new_id
from agent.core.plain_json import Json
from agent.store.engine.work_rows import WorkRow

LeaseVerb = Literal[
    "running",
    "heartbeat",
    "checkpoint",
    "log",
    "artifact",
    "snapshot",
    "complete",
    "fail",
    "release",
    "ask",
    "expire",
]
"""The request of a lease's holder, in the API the last part of the path; `expire` is an operator's."""
LostReason = Literal["unknown", "expired", "released", "ended", "withdrawn"]


class LeaseAddress(NamedTuple):
    """Where the work of a lease stands: a lease's id says it, so that nothing is read to find it."""

    work_id: str
    task_id: str
    step_index: int
    parallel_index: int


def new_lease_id(row: WorkRow) -> str:
    """Return the id of a new lease; no other lease of the work has or had it."""
    nonce = new_id().replace("-", "")[-16:]
    return f"{row.id}.{row.task_id}.{row.step_index}.{row.parallel_index}.{nonce}"


def parse_lease(lease_id: str) -> LeaseAddress | None:
    """Return the address of a lease's work; None for a text that is no id of a lease."""
    parts = lease_id.split(".")
    if len(parts) != 5 or not all(part.lstrip("-").isdigit() for part in parts[2:4]):
        return None
    index, parallel_index = int(parts[2]), int(parts[3])
    if not (0 <= index < 2**31 and -1 <= parallel_index < 2**31):
        return None
    return LeaseAddress(parts[0], parts[1], index, parallel_index)


@dataclass(slots=True, eq=False)
class WorkClaim:
    """A worker asks for work of some queues."""

    queues: frozenset[str]
    worker: str
    limit: int = 1
    client_token: str | None = None
    """A repetition with the same token gets the same leases."""
    must_start: bool = False
    """Whether the work begins with the claim."""
    lease_us: int | None = None
    """None: as long as the step says."""
    tries: int = 0


@dataclass(frozen=True, slots=True)
class LeasedWork:
    """Work that a worker got, with all that it needs to know."""

    row: WorkRow
    workflow: str
    step: str
    max_attempts: int
    output_schema: dict[str, Any] | None
    remote_key: str | None
    checkpoint: str | None
    snapshot: str | None
    """The id of the newest snapshot of its task."""


@dataclass(slots=True)
class ClaimResult:
    """The result of a claim; the rows are as the transaction leaves them."""

    leased: list[LeasedWork] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class LeaseCall:
    """A request under a lease, or the check of one; `verb` decides which members count."""

    lease_id: str
    address: LeaseAddress
    verb: LeaseVerb
    may_use: Callable[[str], bool]
    """Whether the caller may do the work of a queue."""
    text: str | None = None
    """JSON text: of the output, the checkpoint, the artifact's reference or the snapshot's value."""
    output: Json = None
    """The output as a value, or the reference to it, as the ledger records it."""
    code: str = "failed"
    message: str = ""
    """Of `fail` and `release`: why. Of `log`: the text. Of `ask`: the question."""
    is_retryable: bool = True
    delay_seconds: float | None = None
    stream: str = "log"
    label: str | None = None
    client_token: str | None = None
    """Of `snapshot`: a repetition with the same token gets the same snapshot."""
    checkpoint: str | None = None
    snapshot: tuple[str, str | None] | None = None
    """Of `complete`: (JSON text, label) of a snapshot to append."""
    question: dict[str, Any] = field(default_factory=dict)
    """Of `ask`: choices, schema, who, expires_seconds."""
    tries: int = 0


@dataclass(frozen=True, slots=True)
class LeaseResult:
    """The result of a call on a lease."""

    lost: LostReason | None = None
    """Why the lease does not count any more; nothing has changed then."""
    directive: Literal["continue", "pause", "cancel"] = "continue"
    lease_expires_at: int | None = None
    step_status: str = ""
    task_id: str = ""
    approval_id: str | None = None
    snapshot_id: str | None = None
    is_late: bool = False
    """Whether the lease had ended, and the result has settled its own unknown effect."""
    refusal: str | None = None
    """Why the call is not possible, although the lease counts."""


WorkPart = WorkClaim | LeaseCall
WorkResult = ClaimResult | LeaseResult
