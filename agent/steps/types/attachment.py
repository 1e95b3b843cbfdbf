"""The attachments of a message or a mail."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file to send with a message or a mail."""

    name: str
    content: bytes
    path: str | None = None
    """Where it is on this machine; None for a value of the task."""
