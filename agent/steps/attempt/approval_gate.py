"""The approval gate: a gated step runs exactly what a person has approved.

The request is rendered first. Its hash must be among the recorded approvals; otherwise the attempt
ends with a question. Edits of an answer are put into the configuration, which must then have the
hash that was approved.
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
    """Return the request that a gate asks about: the step's kind and its rendered configuration."""
    return {"kind": kind, "config": config}


def find_approval(
    attempt_input: AttemptInput, request: Json, *statuses: ApprovalStatus
) -> RecordedApproval | None:
    """Return the latest answer to exactly this request, or None."""
    encode(request, "what is to be approved")
    digest = request_hash(request)
    return next(
        (
            approval
            for approval in reversed(attempt_input.approvals)
            if approval.request_hash == digest and approval.status in statuses
        ),
        None,
    )


def ask(kind: str, config: Answerable, request: Json, checkpoint: Json) -> Waiting:
    """Return the outcome that asks; raise `NotPlainJsonError` for a question that cannot be stored."""
    question = Question(
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
    encode(asdict(question), "the question")
    return Waiting(question, None, checkpoint)


def answer_output(approval: RecordedApproval) -> dict[str, Json]:
    """Return the step's output for an answer."""
    return {
        "decision": str(approval.status),
        "by": approval.by,
        "comment": approval.comment,
        "value": approval.value,
    }


def apply_edits(config: dict[str, Json], edits: dict[str, Json] | None) -> dict[str, Json]:
    """Return a configuration with new values for some of its keys, which are paths such as `a.b`."""
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


def own_checkpoint(attempt_input: AttemptInput) -> Json:
    """Return the step's own checkpoint, without the engine's additions while the step asks."""
    checkpoint, waited = attempt_input.checkpoint, attempt_input.waited
    approval_id = None if waited is None else waits.approval_of(waited.on)
    if approval_id is None:
        return checkpoint
    if isinstance(checkpoint, dict) and checkpoint.get("approval_id") == approval_id:
        return checkpoint.get("saved")
    return checkpoint
