"""What a command writes: streamed to the step's log in whole lines, and kept within a bound."""

import asyncio
import codecs
from collections.abc import Callable
from typing import Final

from agent.steps.attempt.secrets import Secrets

CHUNK_BYTES: Final = 65_536
MAX_LINE: Final = 8_192
TAIL: Final = 2_000


class OutputCapture:
    """One stream of a command, without the step's secrets."""

    def __init__(self, limit_bytes: int, secrets: Secrets, tell: Callable[[str], None]) -> None:
        self._limit = limit_bytes
        self._secrets = secrets
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept: list[str] = []
        self._kept_bytes = 0
        self._open_line = ""
        self.tail = ""
        """The last of what was written, for a message."""
        self.is_cut = False

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read a stream to its end."""
        while chunk := await reader.read(CHUNK_BYTES):
            self._take(self._decoder.decode(chunk))

    def finish(self) -> str:
        """Give out the last line, though it has no end, and return what was kept."""
        self._take(self._decoder.decode(b"", final=True))
        self._give(self._secrets.redact(self._open_line))
        self._open_line = ""
        return "".join(self._kept)

    def _take(self, text: str) -> None:
        # Neither JSON columns nor log rows can hold a NUL.
        text = self._open_line + text.replace("\0", "\ufffd")
        end = text.rfind("\n") + 1
        self._give(self._secrets.redact(text[:end]))
        rest = text[end:]
        longest = self._secrets.longest
        if len(rest) > MAX_LINE + longest:
            # Whole secrets are gone after this; the beginning of one is kept back.
            rest = self._secrets.redact(rest)
            cut = len(rest) - longest
            self._give(rest[:cut])
            rest = rest[cut:]
        self._open_line = rest

    def _give(self, text: str) -> None:
        if not text:
            return
        self.tail = (self.tail + text)[-TAIL:]
        self._tell(text.removesuffix("\n"))
        data = text.encode("utf-8")
        room = self._limit - self._kept_bytes
        if len(data) > room:
            self.is_cut = True
            data = data[: max(room, 0)]
            text = data.decode("utf-8", "ignore")
        self._kept.append(text)
        self._kept_bytes += len(data)
