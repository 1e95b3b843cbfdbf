"""What a step attaches to a mail or a message, with its content."""

from dataclasses import dataclass

from agent.core.ids import content_hash
from agent.steps.types.outcome import Json


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment."""

    name: str
    media_type: str
    content: bytes

    def document(self) -> dict[str, Json]:
        """Return what the ledger records of it: enough to see that it is another one."""
        return {
            "name": self.name,
            "type": self.media_type,
            "size": len(self.content),
            "sha256": content_hash(self.content),
        }
