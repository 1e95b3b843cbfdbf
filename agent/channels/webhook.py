"""Webhooks: signed notifications to a program, with a link by which a person can answer."""

import asyncio
import json
from typing import Final

import httpx

from agent.channels import link_signing
from agent.channels.channel import DeliveryError, Notification
from agent.channels.chat.chat_error import unreachable
from agent.config.channels import WebhookSettings
from agent.core.clock import SECOND, Clock, to_iso
from agent.steps.types.outcome import Json
from agent.telemetry import trace_context

NAME: Final = "webhook"
_CALL_SECONDS: Final = 15.0
_MAX_REJECTIONS: Final = 5
_RETRYABLE: Final = frozenset({408, 425, 429})


class Webhook:
    """Sends notifications to one URL; answers come through the HTTP API."""

    name = NAME
    reports_ends = False

    def __init__(
        self,
        settings: WebhookSettings,
        key: bytes,
        clock: Clock,
        sample_ratio: float | None = None,
    ) -> None:
        """`sample_ratio` is the share of tasks that are traced; None without traces."""
        self.events = tuple(settings.events)
        self._settings = settings
        self._key = key
        self._clock = clock
        self._sample_ratio = sample_ratio
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(_CALL_SECONDS), follow_redirects=False
        )

    async def deliver(self, notification: Notification) -> None:
        """Send a notification; every status but 2xx is retried."""
        body = json.dumps(self._document(notification), ensure_ascii=False).encode()
        headers = link_signing.signed_headers(self._key, notification.id, self._clock.now(), body)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                answer = await self._client.post(
                    self._settings.url,
                    content=body,
                    headers={
                        "content-type": "application/json",
                        **headers,
                        **self._trace(notification),
                    },
                )
        except (httpx.HTTPError, TimeoutError) as error:
            failure = unreachable("the webhook's URL", error, may_have_happened=True)
            raise failure.as_delivery_error() from None
        if answer.is_success:
            return
        is_rejected = answer.status_code < 500 and answer.status_code not in _RETRYABLE
        raise DeliveryError(
            f"the webhook's URL answered {answer.status_code}",
            retry_after_seconds=_seconds(answer.headers.get("retry-after")),
            max_attempts=_MAX_REJECTIONS if is_rejected else None,
        )

    def _trace(self, notification: Notification) -> dict[str, str]:
        if self._sample_ratio is None or notification.task is None:
            return {}
        task_id = str(notification.task["id"])
        trace = trace_context.trace_of(task_id, notification.started_by, self._sample_ratio)
        return {trace_context.KEY: trace.root.traceparent}

    async def update(self, notification: Notification) -> None:
        """Send the decision: for a program it is a notification like any other."""
        await self.deliver(notification)

    async def receive(self) -> bool:
        """Return False: answers come through the HTTP API."""
        return False

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _document(self, notification: Notification) -> dict[str, Json]:
        data: dict[str, Json] = {"task": notification.task}
        if notification.outage is not None:
            data["outage"] = notification.outage
        if notification.upkeep is not None:
            data["upkeep"] = notification.upkeep
        if notification.trigger is not None:
            data["trigger"] = notification.trigger
        if notification.approval is not None:
            data["approval"] = notification.approval
            if notification.approval["status"] == "pending" and self._settings.link_base_url:
                data["link"] = self._link(notification)
        return {"type": notification.event, "timestamp": to_iso(notification.at), "data": data}

    def _link(self, notification: Notification) -> str:
        assert notification.approval is not None
        # From the event's own time: every attempt sends the same link.
        expires_at = notification.at + int(self._settings.link_hours * 3600) * SECOND
        token = link_signing.link_token(self._key, notification.approval["id"], expires_at)
        return f"{self._settings.link_base_url.rstrip('/')}/links/{token}"


def _seconds(text: str | None) -> float | None:
    """Read a `Retry-After` in seconds."""
    return float(text) if text is not None and text.isdecimal() else None
