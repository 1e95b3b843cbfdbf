"""One-time links to the dashboard, as the API makes them."""

from typing import Literal

from pydantic import Field

from agent.server.access.sessions import SESSION_SECONDS
from agent.server.schemas.base import Instant, RequestDocument, ResponseDocument, with_example


class NewSignInLink(RequestDocument):
    """The session that a link will begin."""

    name: str = Field(
        default="browser",
        min_length=1,
        max_length=100,
        description="The session's name: its answers are recorded as page:NAME.",
        examples=["phone"],
    )
    scopes: list[Literal["read", "operate", "approve", "admin"]] = Field(
        default=["admin"], min_length=1, max_length=4, examples=[["approve"]]
    )
    seconds: int = Field(
        default=SESSION_SECONDS,
        ge=1,
        le=10 * 365 * 86_400,
        description="How long the session lasts; never longer than the token that asks.",
    )


class SignInLink(ResponseDocument):
    """A link that works once, and for a minute."""

    model_config = with_example(
        {
            "path": "/sign-in/agent_Jx2…",
            "url": "https://agent.example.com/sign-in/agent_Jx2…",
            "name": "phone",
            "scopes": ["approve"],
            "expires": "2026-03-01T08:01:00.000Z",
        }
    )

    path: str = Field(description="its path on this server")
    url: str | None = Field(default=None, description="its address, where public_url names one")
    name: str = Field(description="the session's name, with a number if the name is taken")
    scopes: list[str]
    expires: Instant
