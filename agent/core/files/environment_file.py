r"""The `.env` file beside the configuration: values for `env:NAME` references, and for nothing else.

Its values are never put into the process's environment: commands inherit that. The file holds secrets,
so it is used only while other users can neither read nor change it.

Syntax: `NAME=value` a line, with or without `export ` in front; `#` starts a comment. A value may be
quoted and then have several lines: in single quotes as it is, in double quotes with the escapes
`\n \r \t \" \\ \$`. Nothing is substituted: `$` is only a character.
"""

import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.core.files.file_trust import Trust, can_be_read_by_others, weaknesses

NAME: Final = ".env"
_MAX_BYTES: Final = 1_048_576
_MAX_PROBLEMS: Final = 5
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}
_NAME: Final = r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"
_REST: Final = r"[ \t]*(?:[ \t]#[^\n]*)?\r?(?=\n|\Z)"


class EnvironmentFileError(Exception):
    """The file cannot be used; the message never contains a value of it."""


def parse_environment(text: str) -> dict[str, str]:
    """Return the values of a `.env` file; raise `EnvironmentFileError` with the lines that are wrong."""
    reader = _Reader(text.removeprefix("\ufeff"))
    reader.read()
    if reader.problems:
        shown = [f"line {line}: {what}" for line, what in reader.problems[:_MAX_PROBLEMS]]
        if len(reader.problems) > _MAX_PROBLEMS:
            shown.append(f"and {len(reader.problems) - _MAX_PROBLEMS} more")
        raise EnvironmentFileError("; ".join(shown))
    return reader.values


class _Reader:
    """Reads one text from its start to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.values: dict[str, str] = {}
        self.problems: list[tuple[int, str]] = []

    def read(self) -> None:
        while self._at < len(self._text):
            start = self._at
            try:
                self._read_entry()
            except EnvironmentFileError as error:
                # The next line may be right: all problems are reported at once.
                self.problems.append((self._text.count("\n", 0, start) + 1, str(error)))
                self._at = start
            self._at = self._end_of_line(self._at) + 1

    def _read_entry(self) -> None:
        """Read one entry, a comment or an empty line; stop before the end of its last line."""
        line = self._text[self._at : self._end_of_line(self._at)]
        indent = len(line) - len(line.lstrip(" \t"))
        if not line.strip() or line[indent] == "#":
            return
        match = re.compile(_NAME).match(self._text, self._at + indent, self._end_of_line(self._at))
        if match is None:
            raise EnvironmentFileError(
                "expected NAME=value; a name has letters, digits and _, and no digit in front"
            )
        self._at = match.end()
        if self._text[self._at : self._at + 1] in ("'", '"'):
            value = self._quoted(self._text[self._at])
        else:
            value = self._unquoted()
        if "\0" in value:
            raise EnvironmentFileError("a value must not contain a NUL character")
        self.values[match[1]] = value

    def _quoted(self, quote: str) -> str:
        parts: list[str] = []
        at = self._at + 1
        while at < len(self._text) and self._text[at] != quote:
            following = self._text[at + 1 : at + 2]
            if quote == '"' and self._text[at] == "\\" and following in _ESCAPES and following:
                parts.append(_ESCAPES[following])
                at += 2
            else:
                parts.append(self._text[at])
                at += 1
        if at >= len(self._text):
            raise EnvironmentFileError("the quote that begins the value is never closed")
        rest = re.compile(_REST).match(self._text, at + 1)
        if rest is None:
            raise EnvironmentFileError("there is text after the closing quote")
        self._at = rest.end()
        return "".join(parts)

    def _unquoted(self) -> str:
        end = self._end_of_line(self._at)
        value, self._at = self._text[self._at : end], end
        # At the start or after a space: a `#` inside a value belongs to it.
        return re.split(r"(?:^|[ \t])#", value, maxsplit=1)[0].strip(" \t\r")

    def _end_of_line(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end


class EnvironmentFile:
    """The file at a path, read again when it has changed; any thread may use it."""

    def __init__(self, path: Path, trust: Callable[[], Trust]) -> None:
        self.path = path
        self._trust = trust
        self._lock = threading.Lock()
        self._state: tuple[int, ...] | None = None
        self._values: dict[str, str] = {}
        self._problem: str | None = None

    def get(self, name: str) -> str | None:
        """Return a value; None if the file has none, or is not there.

        Raises `EnvironmentFileError` if the file cannot be used.
        """
        return self.values().get(name)

    def values(self) -> dict[str, str]:
        """Return all values; raise `EnvironmentFileError` if the file cannot be used."""
        with self._lock:
            state = self._state_now()
            if state is None or state != self._state:
                self._values, self._problem = {}, None
                if state is not None:
                    try:
                        self._values = self._read()
                    except EnvironmentFileError as error:
                        self._problem = f"{self.path}: {error}"
                self._state = state
            if self._problem is not None:
                raise EnvironmentFileError(self._problem)
            return self._values

    def _state_now(self) -> tuple[int, ...] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        # The change time moves with the content, the mode and the owner.
        return (
            status.st_dev,
            status.st_ino,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_size,
        )

    def _read(self) -> dict[str, str]:
        try:
            # A FIFO would block.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                self._check(os.fstat(descriptor))
                content = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise EnvironmentFileError(f"cannot be read: {error.strerror}") from None
        if len(content) > _MAX_BYTES:
            raise EnvironmentFileError(f"is larger than {_MAX_BYTES} bytes")
        try:
            return parse_environment(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise EnvironmentFileError(f"line {line}: this is not UTF-8") from None

    def _check(self, status: os.stat_result) -> None:
        """Refuse a file that other users can read or change."""
        if not stat.S_ISREG(status.st_mode):
            raise EnvironmentFileError("is not a regular file")
        try:
            trust = self._trust()
        except ValueError as error:
            raise EnvironmentFileError(f"trusted_users or trusted_groups: {error}") from None
        for weakness in weaknesses(self.path, trust):
            raise EnvironmentFileError(
                f"is not used: {weakness.path} {weakness.problem}: {weakness.remedy}"
            )
        if can_be_read_by_others(status, trust):
            raise EnvironmentFileError(
                f"is not used: other users can read it: chmod 600 {self.path}"
            )
