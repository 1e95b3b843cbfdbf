"""Slack's Web API over HTTP, with the official SDK."""

import asyncio
from typing import Any, Final

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from agent.channels.chat.chat_error import ChatError, unreachable

CALL_SECONDS: Final = 15
GONE: Final = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
PERMANENT: Final = frozenset(
    {
        *GONE,
        "account_inactive",
        "cannot_dm_bot",
        "channel_not_found",
        "invalid_blocks",
        "is_archived",
        "messages_tab_disabled",
        "msg_too_long",
        "not_in_channel",
        "restricted_action",
        "user_disabled",
        "user_not_found",
        "user_not_visible",
    }
)
"""Errors that a retry cannot fix. A wrong token is not among them: the owner can replace it."""
_UNSURE: Final = frozenset({"fatal_error", "internal_error", "service_unavailable"})
"""Errors after which the request may have been carried out all the same."""


class RedirectError(aiohttp.ClientError):
    """The server answered with a redirect."""


class SlackApi:
    """Requests of one app."""

    def __init__(self, url: str, bot_token: str, *secrets: str, reuses: bool = True) -> None:
        """Take the bot's token, and other secrets that no error may show.

        Without `reuses`, each request has a connection of its own: a server that closes a reused one
        at the wrong moment would leave a message unknown without need.
        """
        self._secrets = (bot_token, *secrets)
        self.session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(CALL_SECONDS),
            trace_configs=[_no_redirects()],
            connector=None if reuses else aiohttp.TCPConnector(force_close=True),
        )
        self._web = AsyncWebClient(
            bot_token,
            base_url=f"{url.rstrip('/')}/",
            timeout=CALL_SECONDS,
            session=self.session,
            # The callers retry.
            retry_handlers=[],
        )

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method with a JSON document and return its result; raise `ChatError`."""
        token = arguments.pop("token", None)
        headers = {} if token is None else {"headers": {"Authorization": f"Bearer {token}"}}
        return await self._call(method, json=arguments, **headers)

    async def call_form(self, method: str, **arguments: Any) -> Any:
        """Call a method that takes a form and no JSON."""
        return await self._call(method, data=arguments)

    async def upload(self, url: str, content: bytes, seconds: float) -> None:
        """Send a file's content to the address that Slack gave for it."""
        try:
            async with asyncio.timeout(seconds):
                async with self.session.post(
                    url, data=content, timeout=aiohttp.ClientTimeout(seconds)
                ) as answer:
                    status = answer.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # The text may hold the address, which is a secret. The file is not shown to anyone yet.
            raise unreachable("Slack", error, may_have_happened=False) from None
        if status != 200:
            raise ChatError(f"Slack answered the upload with {status}")

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()

    async def _call(self, method: str, **arguments: Any) -> Any:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return (await self._web.api_call(method, **arguments)).data
        except SlackApiError as error:
            raise self._problem(error) from None
        except RedirectError:
            raise ChatError(
                "Slack answered with a redirect, which is not followed: check api_url in"
                " [channels.slack]"
            ) from None
        except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
            is_unsent = isinstance(error, aiohttp.ClientConnectorError)
            raise unreachable("Slack", error, may_have_happened=not is_unsent) from None

    def _problem(self, error: SlackApiError) -> ChatError:
        answer: Any = error.response
        data = answer.data if isinstance(answer.data, dict) else {}
        code = str(data.get("error") or f"answered {answer.status_code}")
        for secret in self._secrets:
            code = code.replace(secret, "…")
        after = answer.headers.get("Retry-After") or answer.headers.get("retry-after")
        return ChatError(
            f"Slack: {code[:500]}",
            retry_after_seconds=float(after) if after and str(after).isdecimal() else None,
            is_permanent=code in PERMANENT,
            is_message_gone=code in GONE,
            is_malformed=code in ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"),
            may_have_happened=code in _UNSURE or answer.status_code >= 500,
        )


def _no_redirects() -> aiohttp.TraceConfig:
    """Refuse redirects: another host must not get tokens, or the texts of questions."""

    async def refuse(_session: object, _context: object, params: Any) -> None:
        params.response.close()
        raise RedirectError

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace
