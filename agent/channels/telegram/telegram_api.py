"""The Telegram Bot API over HTTP."""

import asyncio
from typing import Any, Final

import httpx

from agent.channels.chat.chat import ChatError

_CALL_SECONDS: Final = 15.0
_GONE: Final = ("message is not modified", "message to edit not found", "message can't be edited")


class BotApi:
    """Requests of one bot."""

    def __init__(self, url: str, token: str) -> None:
        self._token = token
        self._client = httpx.AsyncClient(
            # The token is part of the URL: never follow redirects with it, never log it.
            base_url=f"{url.rstrip('/')}/bot{token}/",
            timeout=httpx.Timeout(_CALL_SECONDS),
            follow_redirects=False,
        )

    @property
    def bot_id(self) -> str:
        """The public part of the token."""
        return self._token.partition(":")[0]

    async def call(self, method: str, *, wait_seconds: float = 0.0, **parameters: Any) -> Any:
        """Call a method and return its result; raise `ChatError`."""
        try:
            async with asyncio.timeout(_CALL_SECONDS + wait_seconds):
                answer = await self._client.post(
                    method, json=parameters, timeout=_CALL_SECONDS + wait_seconds
                )
        except (httpx.HTTPError, TimeoutError) as error:
            # The text may hold the URL, and so the token.
            raise ChatError(f"Telegram cannot be reached ({type(error).__name__})") from None
        try:
            document = answer.json()
            if answer.status_code == httpx.codes.OK and document["ok"] is True:
                return document["result"]
            description = str(document.get("description") or answer.reason_phrase)
            after = (document.get("parameters") or {}).get("retry_after")
        except (ValueError, KeyError, AttributeError, TypeError):
            description, after = f"answered {answer.status_code}", None
        status = answer.status_code
        raise ChatError(
            f"Telegram: {description.replace(self._token, '…')[:500]}",
            retry_after_seconds=float(after) if isinstance(after, int | float) else None,
            is_permanent=status in (400, 403),
            is_message_gone=status == 400 and any(phrase in description for phrase in _GONE),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
