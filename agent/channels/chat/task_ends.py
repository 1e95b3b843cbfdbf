"""The end of a task, as the chat in which it was started reports it."""

from typing import Final

from agent.channels.chat import message_texts
from agent.core.chat_origin import ChatOrigin
from agent.core.escape import harmless
from agent.steps.types.outcome import Json
from agent.store.channels import task_origins
from agent.store.db.database import Connection
from agent.tasks.read_models import task_documents
from agent.tasks.read_models.task_documents import short_id

_MAX_OUTPUT: Final = 1000


def text_of(
    connection: Connection, event: str, task: dict[str, Json], origin: ChatOrigin | None
) -> str | None:
    """Return the text of a task's end; None for a success that the task has reported itself."""
    name = short_id(task["id"])
    if event == "task.failed":
        command = f"\n/why {name}   or   /retry {name}" if origin is not None else ""
        return message_texts.failed_task(task) + command
    if event == "task.canceled":
        return f"⊘ {task['workflow']} {name} was canceled"
    if origin is not None and _has_written_to(connection, task["id"], origin):
        return None
    output = task_documents.task_document(connection, task["id"])["output"]
    text = f"✓ {task['workflow']} {name} succeeded"
    if output not in (None, {}, [], ""):
        shown = message_texts.readable(output)
        text += f"\n{message_texts.cut(harmless(shown), _MAX_OUTPUT)}"
    return text


def _has_written_to(connection: Connection, task_id: str, origin: ChatOrigin) -> bool:
    return any(
        (delivery.get("channel"), delivery.get("recipient")) == (origin.channel, origin.recipient)
        and delivery.get("message_id") is not None
        for delivery in task_origins.deliveries_of(connection, task_id)
    )
