"""The output of a command: streamed to the step's log in whole lines, and captured up to a limit."""

import asyncio
import codecs
from collections.abc import Callable
from typing import Final

from agent.steps.attempt.secrets import Secrets

CHUNK_BYTES: Final = 65_536
MAX_LINE: Final = 8_192
TAIL: Final = 4_000
_LAST_LINES: Final = 5
_MOST_OF_LINE: Final = 500


def ending(output: str) -> str:
    """Return the last lines of a program's output as the end of a message; several on lines of their own.

    The last line alone often says only that there were errors.
    """
    lines = [line.rstrip() for line in output.splitlines() if line.strip()][-_LAST_LINES:]
    between = ":\n" if len(lines) > 1 else ": "
    return between + "\n".join(line[:_MOST_OF_LINE] for line in lines) if lines else ""


def with_clause(message: str, clause: str) -> str:
    """Add a clause to a message; one of several lines gets a line more."""
    return message + ("\n" if "\n" in message else "; ") + clause


class OutputCapture:
    """One stream of a command, without the step's secrets."""

    def __init__(self, limit_bytes: int, secrets: Secrets, log: Callable[[str], None]) -> None:
        self._limit = limit_bytes
        self._secrets = secrets
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._captured: list[str] = []
        self._captured_bytes = 0
        self._open_line = ""
        self.tail = ""
        """The end of the output, for a message."""
        self.is_cut = False

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read a stream to its end."""
        while chunk := await reader.read(CHUNK_BYTES):
            self.add(self._decoder.decode(chunk))

    def finish(self) -> str:
        """Emit the last line, also without a newline, and return the captured text."""
        self.add(self._decoder.decode(b"", final=True))
        self._emit(self._secrets.redact(self._open_line))
        self._open_line = ""
        return "".join(self._captured)

    def add(self, text: str) -> None:
        """Add a decoded chunk; whole lines are emitted, the rest waits for the next chunk."""
        # Neither JSON columns nor log rows can hold a NUL.
        text = self._open_line + text.replace("\0", "\ufffd")
        end = text.rfind("\n") + 1
        self._emit(self._secrets.redact(text[:end]))
        rest = text[end:]
        longest = self._secrets.longest
        if len(rest) > MAX_LINE + longest:
            # This removes whole secrets. The beginning of one stays for the next chunk.
            rest = self._secrets.redact(rest)
            cut = len(rest) - longest
            self._emit(rest[:cut])
            rest = rest[cut:]
        self._open_line = rest

    def _emit(self, text: str) -> None:
        if not text:
            return
        self.tail = (self.tail + text)[-TAIL:]
        self._log(text.removesuffix("\n"))
        data = text.encode("utf-8")
        room = self._limit - self._captured_bytes
        if len(data) > room:
            self.is_cut = True
            data = data[: max(room, 0)]
            text = data.decode("utf-8", "ignore")
        self._captured.append(text)
        self._captured_bytes += len(data)
