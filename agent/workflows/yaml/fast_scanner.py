"""YAML 1.2 events from ruamel.yaml, much faster than by its own loop.

The subclasses change no rule of YAML. They only keep ruamel from checking, for each of a parser's
questions about one token, whether more tokens must be fetched first. A test compares their events with
ruamel's own.
"""

from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import StringMark
from ruamel.yaml.parser import Parser
from ruamel.yaml.reader import Reader
from ruamel.yaml.scanner import Scanner


def events(text: str) -> Iterator[Any]:
    """Yield the YAML events of a text; raise `ruamel.yaml.error.YAMLError` if it is not YAML."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Reader = _Reader
    yaml.Scanner = _Scanner
    yaml.Parser = _Parser
    parsed: Iterator[Any] = yaml.parse(text)
    return parsed


class _Reader(Reader):
    def get_mark(self) -> Any:
        return StringMark(self.name, self.index, self.line, self.column, self.buffer, self.pointer)

    def forward(self, length: int = 1) -> None:
        start = self.pointer
        passed = self.buffer[start : start + length]
        if "\n" in passed or "\r" in passed or "\ufeff" in passed or len(passed) < length:
            super().forward(length)
        else:
            self.pointer = start + length
            self.index += length
            self.column += length


class _Scanner(Scanner):
    # An attribute in place of a property, as in the parser: it is read a million times.
    reader: Any = None

    def __init__(self, loader: Any) -> None:
        self.reader = loader.reader
        self._has_enough = False
        super().__init__(loader)

    def check_token(self, *choices: Any) -> bool:
        if not self._has_enough:
            self._fetch_enough()
        return bool(self.tokens) and (not choices or isinstance(self.tokens[0], choices))

    def peek_token(self) -> Any:
        if not self._has_enough:
            self._fetch_enough()
        return self.tokens[0] if self.tokens else None

    def get_token(self) -> Any:
        if not self._has_enough:
            self._fetch_enough()
        if not self.tokens:
            return None
        self._has_enough = False
        self.tokens_taken += 1
        return self.tokens.pop(0)

    def stale_possible_simple_keys(self) -> None:
        if self.possible_simple_keys:
            super().stale_possible_simple_keys()

    def _fetch_enough(self) -> None:
        while self.need_more_tokens():
            self.fetch_more_tokens()
        self._has_enough = True


class _Parser(Parser):
    scanner: Any = None
    resolver: Any = None

    def __init__(self, loader: Any) -> None:
        self.scanner = loader.scanner
        self.resolver = loader.resolver
        super().__init__(loader)
