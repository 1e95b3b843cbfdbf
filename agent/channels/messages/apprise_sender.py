"""Sends messages of steps to an address of Apprise, which is a secret given by reference."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.channels.messages.document import parse
from agent.channels.messages.plain_text import defused, to_plain
from agent.channels.secret_ref import SecretError, read_secret
from agent.steps.types.attachment import Attachment
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.messages import Sending
from agent.steps.types.outcome import StepError


class AppriseSender:
    """Sends one part of a message; Apprise says only whether it worked."""

    async def send(self, sending: Sending) -> str:
        """Send a text, or a file. Services return no id; the call's key stands for one."""
        # Apprise loads a hundred services at its first use.
        address = await asyncio.to_thread(self._address, sending.recipient.id)
        blocks = parse(sending.part.text, is_markdown=sending.part.is_markdown)
        attachment = sending.part.attachment
        # As plain text: markup could mention people on some services.
        body = defused(to_plain(blocks)) if attachment is None else attachment.name
        with tempfile.TemporaryDirectory(prefix="agent-message-") as directory:
            paths = [] if attachment is None else [_written(attachment, directory)]
            has_worked = await self._notify(address, body, paths)
        if not has_worked:
            text = (
                f"Apprise could not send to {sending.recipient.id}, or could not tell: whether the"
                " message arrived is unknown"
            )
            raise UnknownOutcomeError(StepError("unknown_outcome", "unknown", text))
        return sending.key[:16]

    async def close(self) -> None:
        """Nothing stays open."""

    def _address(self, reference: str) -> Any:
        try:
            from apprise import Apprise
        except ImportError:
            raise _refused(
                "Apprise needs a library: python -m pip install apprise", "no_library"
            ) from None
        try:
            secret = read_secret(reference)
        except SecretError as error:
            raise _refused(str(error), "secret_missing") from None
        address = Apprise()
        if not address.add(secret):
            raise _refused(f"Apprise does not know the address in {reference}", "bad_address")
        return address

    async def _notify(self, address: Any, body: str, paths: Sequence[str]) -> bool:
        from apprise import NotifyFormat

        try:
            return bool(
                await address.async_notify(
                    body=body, body_format=NotifyFormat.TEXT, attach=list(paths) or None
                )
            )
        except TypeError as error:
            # Apprise raises this for an address that it cannot use; it has sent nothing.
            raise _refused(f"Apprise: {error}", "bad_address") from None


def _written(attachment: Attachment, directory: str) -> str:
    path = Path(directory, Path(attachment.name).name)
    path.write_bytes(attachment.content)
    return str(path)


def _refused(message: str, code: str) -> DefiniteFailure:
    return DefiniteFailure(message, code=code, kind="input", may_retry=False)
