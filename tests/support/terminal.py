"""A command at a terminal of its own: a real pseudo-terminal, its controlling one."""

import os
import pty
import re
import select
import time
from pathlib import Path

from tests.support import fork_server
from tests.support.cli import PATIENCE_SECONDS, Cli

_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """One command, and the person in front of it."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        self._own, self._other = pty.openpty()
        environment = {**cli.environment, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        # This terminal does not say where its cursor is.
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
        screen = Path(os.ttyname(self._other))
        self._process = fork_server.shared().start(
            list(arguments), cli.directory, environment, stdin=screen, stdout=screen, stderr=screen
        )
        self.text = ""

    @property
    def plain(self) -> str:
        """What is on the screen, without colours and movements."""
        return _STYLES.sub("", self.text).replace("\r", "")

    def expect(self, words: str) -> None:
        """Wait until some words are on the screen."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text and words not in self.plain:
            assert time.monotonic() < give_up, self.text[-3000:]
            assert self._read(), self.text[-3000:]

    def type(self, text: str, end: str = "\r") -> None:
        """Type a line, or other keys without an end."""
        self.text = ""
        os.write(self._own, f"{text}{end}".encode())

    def leave(self) -> int:
        """Leave as people do, and return the exit code.

        A key that is pressed while the prompt is drawn again may be lost: it is pressed again.
        """
        give_up = time.monotonic() + PATIENCE_SECONDS
        press_at = 0.0
        while self._process.poll() is None:
            assert time.monotonic() < give_up, self.text[-3000:]
            if time.monotonic() >= press_at:
                os.write(self._own, b"\x04")
                press_at = time.monotonic() + 2.0
            self._read()
        return self.wait()

    def wait(self) -> int:
        """Read to the end and return the exit code."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while self._read():
            assert time.monotonic() < give_up, self.text[-3000:]
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End it in any case."""
        self._process.kill()
        for descriptor in (self._own, self._other):
            os.close(descriptor)

    def _read(self) -> bool:
        """Read what comes within a moment; return False once the command has ended and all is read."""
        has_ended = self._process.poll() is not None
        if select.select([self._own], [], [], 0.0 if has_ended else 0.1)[0]:
            self.text += os.read(self._own, 65536).decode(errors="replace")
            return True
        return not has_ended
