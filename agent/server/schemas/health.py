"""What the health routes return."""

from pydantic import Field

from agent.server.schemas.base import ResponseDocument, with_example


class Health(ResponseDocument):
    """Whether the agent works."""

    model_config = with_example({"status": "ok"})

    status: str = Field(
        examples=["ok"], description="ok, degraded, starting, stopping, unavailable"
    )
    because: list[str] | None = Field(
        default=None, description="what does not work: database, artifacts, disk"
    )
