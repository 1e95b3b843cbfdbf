"""Notifications made from events, with the task and the approval that an event is about."""

from agent.approvals import approval_documents
from agent.channels.channel import Notification
from agent.config.channels import ENDS, OUTAGES, PAIRED, TRIGGER_NOTICES, UPKEEP_NOTICES
from agent.core.chat_origin import ChatOrigin
from agent.core.clock import to_iso
from agent.steps.types.outcome import Json
from agent.store.channels import task_origins
from agent.store.channels.cursors import Event
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.engine import approval_rows
from agent.store.read import views
from agent.tasks.errors import NotFoundError


def notification_of(connection: Connection, event: Event) -> Notification | None:
    """Return the notification of an event; None when its task or approval was removed."""
    # With the task's id, which is unique across databases: a receiver of several agents drops
    # repetitions by this id alone.
    notification_id = f"event-{event.task_id or event.at}-{event.xid}-{event.id}"
    data = event.data if isinstance(event.data, dict) else {}
    approval = None
    if "approval" in data:
        try:
            approval = approval_documents.approval_document(connection, data["approval"])
        except NotFoundError:
            return None
    row = None if event.task_id is None else views.task(connection, event.task_id)
    if event.task_id is not None and row is None:
        return None
    task = _task(row)
    outage = data if event.type in OUTAGES else None
    trigger = data if event.type in TRIGGER_NOTICES else None
    return Notification(
        notification_id,
        event.type,
        event.at,
        event.position,
        task,
        approval,
        outage,
        trigger,
        origin=_origin(connection, event),
        started_by=None if row is None else decode(row["trigger"]),
        upkeep=data if event.type in UPKEEP_NOTICES else None,
        paired=data if event.type == PAIRED else None,
    )


def _origin(connection: Connection, event: Event) -> ChatOrigin | None:
    if event.task_id is None or event.type not in ENDS:
        return None
    return task_origins.origin_of(connection, event.task_id)


def open_questions(connection: Connection, limit: int) -> list[Notification]:
    """Return the notifications of all pending approvals, for a channel that is new."""
    return [
        Notification(
            f"open-{document['id']}",
            "approval.requested",
            approval_rows.created_at(connection, document["id"]),
            None,
            _task(views.task(connection, document["task"])),
            document,
        )
        for document in approval_documents.list_approvals(connection, limit=limit)
    ]


def _task(row: views.Found | None) -> dict[str, Json] | None:
    if row is None:
        return None
    return {
        "id": row["id"],
        "workflow": row["workflow_name"],
        "status": row["status"],
        "error": decode(row["error"]),
        "ended_at": to_iso(row["ended_at"]),
    }
