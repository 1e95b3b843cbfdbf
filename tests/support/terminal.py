"""A command at a terminal of its own: a real pseudo-terminal, its controlling one."""

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time

from tests.support.cli import PATIENCE_SECONDS, PROGRAM, Cli

_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """One command, and the person in front of it."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        self._own, other = pty.openpty()
        environment = {**cli.environment, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        # This terminal does not say where its cursor is.
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self._process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=cli.directory,
            env=environment,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            # Only the controlling terminal turns Ctrl-C into a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one thread
        )
        os.close(other)
        self.text = ""

    @property
    def plain(self) -> str:
        """What is on the screen, without colours and movements."""
        return _STYLES.sub("", self.text).replace("\r", "")

    def expect(self, words: str) -> None:
        """Wait until some words are on the screen."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while words not in self.text and words not in self.plain:
            assert time.monotonic() < give_up, self.text
            assert self._read(), self.text

    def type(self, text: str, end: str = "\r") -> None:
        """Type a line, or other keys without an end."""
        self.text = ""
        os.write(self._own, f"{text}{end}".encode())

    def leave(self) -> int:
        """Leave as people do, and return the exit code."""
        os.write(self._own, b"\x04")
        return self._process.wait(PATIENCE_SECONDS)

    def wait(self) -> int:
        """Read to the end and return the exit code."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while self._read():
            assert time.monotonic() < give_up, self.text
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """End it in any case."""
        self._process.kill()
        self._process.wait()
        os.close(self._own)

    def _read(self) -> bool:
        """Read what comes within a moment; return False once the command has closed its terminal."""
        if select.select([self._own], [], [], 0.2)[0]:
            try:
                self.text += os.read(self._own, 65536).decode(errors="replace")
            except OSError:
                return False
        return True
