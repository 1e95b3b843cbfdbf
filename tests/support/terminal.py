"""`agent chat` at a pseudo-terminal."""

import os
import pty
import select
import subprocess
import time

from tests.support.cli import PATIENCE_SECONDS, PROGRAM, Cli


class Terminal:
    """`agent chat` at a terminal of its own."""

    def __init__(self, cli: Cli) -> None:
        self._own, other = pty.openpty()
        environment = {**cli.environment, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        # This terminal does not say where its cursor is.
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self._process = subprocess.Popen(
            [*PROGRAM, "chat"],
            cwd=cli.directory,
            env=environment,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.text = ""

    def expect(self, words: str) -> None:
        """Wait until some words are on the screen."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text:
            assert time.monotonic() < give_up, self.text
            if select.select([self._own], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self._own, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(self.text) from None

    def type(self, text: str) -> None:
        """Type a line."""
        self.text = ""
        os.write(self._own, f"{text}\r".encode())

    def leave(self) -> int:
        """Leave as people do, and return the exit code."""
        os.write(self._own, b"\x04")
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End it in any case."""
        self._process.kill()
        self._process.wait()
        os.close(self._own)
