"""Images and other binary content of tools' answers: kept with the call's record, shown to models that can see.

A record that exceeds `inline_output_bytes` is stored as an artifact, as every large value is.
"""

import base64
import binascii
from typing import Any, Final

from agent.models.protocol import IMAGE_TYPES, Image
from agent.steps.types.outcome import Json

MAX_BYTES: Final = 5_242_880
"""Of one answer. Providers accept no larger image."""
_SIGNATURES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


class ContentKeeper:
    """Collects the binary parts of one answer, up to a bound."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Json]] = []
        self._bytes = 0

    def add(self, kind: str, mime: str | None, data: Any) -> str:
        """Keep a part; return the text in its place."""
        mime = (mime or "application/octet-stream").lower()
        try:
            content = base64.b64decode(data, validate=True)
        except (TypeError, ValueError, binascii.Error):
            return f"[{kind}: its data is not base64]"
        if self._bytes + len(content) > MAX_BYTES:
            return f"[{kind}, {mime}, {len(content):,} bytes: too large to be kept]"
        self._bytes += len(content)
        self.parts.append({"type": kind, "mime": mime, "data": data})
        return f"[{kind} {len(self.parts)}: {mime}, {len(content):,} bytes]"


def images_of(parts: Json) -> tuple[Image, ...]:
    """Return those recorded parts that models can see; their content decides, not their label alone."""
    if not isinstance(parts, list):
        return ()
    return tuple(
        Image(part["mime"], part["data"])
        for part in parts
        if part.get("mime") in IMAGE_TYPES and _is_really(part["mime"], part["data"])
    )


def _is_really(mime: str, data: str) -> bool:
    """Whether data begins as its type does: a provider refuses the whole conversation otherwise."""
    beginning = base64.b64decode(data[:64])
    return beginning.startswith(_SIGNATURES[mime])
