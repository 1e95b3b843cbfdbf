"""Lines that a person types, read while something else is watched.

The terminal itself edits the line. So a prompt can be left at any time: when the question is answered
elsewhere, or when the process that runs the task has ended.
"""

import os
import select
import sys
import termios
from collections.abc import Callable
from typing import Final

from agent.cli.output import terminal

_POLL_SECONDS: Final = 0.3
MAX_BYTES: Final = 65_536


def is_possible() -> bool:
    """Whether a person sits at this process's input and output."""
    return sys.stdin.isatty() and terminal.is_terminal()


class LineInput:
    """Asks for lines at a terminal; `poll` is called while it waits, and may raise to leave."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll
        self._fd = sys.stdin.fileno()
        self._typed = b""
        # Text typed before the question was on the screen is no answer to it.
        self.discard()

    def ask(self, prompt: str) -> str | None:
        """Return the line that a person types; None at the end of the input (Ctrl-D)."""
        print(terminal.harmless(prompt), end="", flush=True)
        while b"\n" not in self._typed:
            if not select.select([self._fd], [], [], _POLL_SECONDS)[0]:
                self._poll()
                continue
            try:
                chunk = os.read(self._fd, 4096)
            except OSError:
                # The terminal was closed.
                chunk = b""
            if not chunk or len(self._typed) > MAX_BYTES:
                print(flush=True)
                return None
            self._typed += chunk
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def discard(self) -> None:
        """Discard typed text that was not read yet."""
        self._typed = b""
        try:
            termios.tcflush(self._fd, termios.TCIFLUSH)
        except (OSError, termios.error):
            return
