"""The gate before a step acts: nothing runs but what somebody has approved, to the letter.

What would run is rendered first, and its hash is looked for among the approvals on record. If it is
not there, or stands for something else, the attempt ends by asking. What an answer edited is put
into the configuration, which must then be just what was approved.
"""

from dataclasses import asdict
from typing import Any

from agent.core import waits
from agent.core.ids import request_hash
from agent.core.state_machine import ApprovalStatus
from agent.steps.spec.questions import ApprovalConfig, InputConfig
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import RecordedApproval
from agent.steps.types.outcome import Json, Question, Waiting
from agent.store.db.json_values import encode

Answerable = ApprovalConfig | InputConfig


def gated_request(kind: str, config: dict[str, Json]) -> dict[str, Json]:
    """Return what a gate asks about: the kind of the step, and its rendered configuration."""
    return {"kind": kind, "config": config}


def find(
    claimed: AttemptInput, request: Json, *statuses: ApprovalStatus
) -> RecordedApproval | None:
    """Return the latest answer to exactly this request, if there is one."""
    encode(request, "what is to be approved")
    digest = request_hash(request)
    return next(
        (
            approval
            for approval in reversed(claimed.approvals)
            if approval.request_hash == digest and approval.status in statuses
        ),
        None,
    )


def ask(kind: str, config: Answerable, request: Json, checkpoint: Json) -> Waiting:
    """End the attempt by asking; raise `NotPlainJsonError` for what cannot be kept."""
    asked = Question(
        kind=kind,
        message=config.message,
        request=request,
        choices=config.choices if isinstance(config, InputConfig) else None,
        schema=config.schema_ if isinstance(config, InputConfig) else None,
        editable=config.editable or None if isinstance(config, ApprovalConfig) else None,
        who=config.who or None,
        expires_seconds=config.expires,
        on_expiry=config.on_expiry,
        remind_seconds=config.remind,
    )
    encode(asdict(asked), "the question")
    return Waiting(asked, None, checkpoint)


def answered(approval: RecordedApproval) -> dict[str, Json]:
    """Return an answer as the step's output."""
    return {
        "decision": str(approval.status),
        "by": approval.by,
        "comment": approval.comment,
        "value": approval.value,
    }


def edited(config: dict[str, Json], edits: dict[str, Json] | None) -> dict[str, Json]:
    """Return a configuration with some of its keys, given as paths, set to other values."""
    for path, value in (edits or {}).items():
        config = _set(config, path.split("."), value)
    return config


def _set(value: dict[str, Json], path: list[str], new: Json) -> dict[str, Json]:
    key, *rest = path
    if not rest:
        return {**value, key: new}
    inner: Any = value.get(key)
    if not isinstance(inner, dict):
        raise ValueError(f"{key!r} has no keys of its own")
    return {**value, key: _set(inner, rest, new)}


def own_checkpoint(claimed: AttemptInput) -> Json:
    """Return the step's own checkpoint, without what the engine put around it while it asked."""
    checkpoint, waited = claimed.checkpoint, claimed.waited
    approval_id = None if waited is None else waits.approval_of(waited.on)
    if approval_id is None:
        return checkpoint
    if isinstance(checkpoint, dict) and checkpoint.get("approval_id") == approval_id:
        return checkpoint.get("saved")
    return checkpoint
