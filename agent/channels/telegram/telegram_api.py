"""The Telegram Bot API over HTTP."""

import asyncio
from typing import Any, Final

import httpx

from agent.channels.chat.chat_error import ChatError, unreachable

_CALL_SECONDS: Final = 15.0
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_GONE: Final = ("message is not modified", "message to edit not found", "message can't be edited")


class BotApi:
    """Requests of one bot."""

    def __init__(self, url: str, token: str, *, reuses: bool = True) -> None:
        """Take the address and the token.

        Without `reuses`, each request has a connection of its own: a server that closes a reused one
        at the wrong moment would leave a message unknown without need.
        """
        self._token = token
        self._client = httpx.AsyncClient(
            # The token is part of the URL: never follow redirects with it, never log it.
            base_url=f"{url.rstrip('/')}/bot{token}/",
            timeout=httpx.Timeout(_CALL_SECONDS),
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=None if reuses else 0),
        )

    @property
    def bot_id(self) -> str:
        """The public part of the token."""
        return self._token.partition(":")[0]

    async def call(self, method: str, *, wait_seconds: float = 0.0, **parameters: Any) -> Any:
        """Call a method and return its result; raise `ChatError`."""
        return await self._post(method, _CALL_SECONDS + wait_seconds, json=parameters)

    async def upload(
        self, method: str, field: str, file: tuple[str, bytes], seconds: float, **parameters: Any
    ) -> Any:
        """Call a method with a file, by its name and its content."""
        return await self._post(method, seconds, data=parameters, files={field: file})

    async def _post(self, method: str, seconds: float, **content: Any) -> Any:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.post(method, timeout=seconds, **content)
        except (httpx.HTTPError, TimeoutError) as error:
            # The text may hold the URL, and so the token.
            raise unreachable(
                "Telegram", error, may_have_happened=not isinstance(error, _NOT_SENT)
            ) from None
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
            is_malformed=status == 400 and "can't parse entities" in description,
            may_have_happened=status >= 500,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
