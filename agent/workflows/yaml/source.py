"""A workflow file as values with their lines.

Only YAML that is equivalent to JSON is accepted: text keys, no tags, one document, no duplicate keys.
Size, depth and the values that aliases repeat are bounded before they use memory.
"""

import json
import re
import time
from typing import Any, Final

from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from agent.workflows.diagnostics import Problem, WorkflowError, cut, write_key
from agent.workflows.yaml.errors import explain, find_unindented_block
from agent.workflows.yaml.fast_scanner import events

MAX_BYTES: Final = 8_000_000
MAX_DEPTH: Final = 50
MAX_VALUES: Final = 400_000

Path = tuple[str | int, ...]
Mark = tuple[int, int, int, int]
"""Line and column of the key, then of the value; from 1."""

_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_WORDS: Final[dict[str, Any]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_NO_NUMBERS: Final = frozenset(
    sign + word for sign in ("", "-", "+") for word in (".inf", ".Inf", ".INF")
) | {".nan", ".NaN", ".NAN"}


class Source:
    """A scanned file: its value, and the line and column of everything in it."""

    def __init__(self, file: str, text: str, cpu_seconds: float | None = None) -> None:
        self.file = file
        self.text = text
        self._cpu_seconds = cpu_seconds
        self._give_up_at = None if cpu_seconds is None else time.thread_time() + cpu_seconds
        self.value: Any = None
        self.marks: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        """Problems that leave a value all the same: a repeated key, a tag."""

    @property
    def language(self) -> str:
        """The file's format, for messages: JSON is read as YAML."""
        return "JSON" if self.file.endswith(".json") else "YAML"

    def check_time(self) -> None:
        """Raise `WorkflowError` if reading and checking it have taken too long."""
        if self._give_up_at is not None and time.thread_time() > self._give_up_at:
            message = (
                f"this takes more than {self._cpu_seconds:g} seconds to check, and was given up"
            )
            raise WorkflowError([Problem(self.file, None, None, "", message)])

    def problem(
        self, path: Path, message: str, hint: str | None = None, *, at_value: bool = False
    ) -> Problem:
        """Return a problem at a path, or at the nearest ancestor with a line."""
        known = path
        while known and known not in self.marks:
            known = known[:-1]
        mark = self.marks.get(known)
        line, column = (None, None) if mark is None else mark[2:] if at_value else mark[:2]
        return Problem(self.file, line, column, cut(write_key(path)), cut(message), cut(hint))


def read_source(file: str, content: str | bytes, cpu_seconds: float | None = None) -> Source:
    """Scan a file's content; raise `WorkflowError` if it is not YAML, or exceeds a bound.

    `cpu_seconds` bounds the time of the thread until the last `check_time` of the source.
    Problems that leave the rest readable are in the source's `problems`; the caller reports them with
    everything else.
    """
    if len(content) > MAX_BYTES:
        raise WorkflowError([Problem(file, None, None, "", f"larger than {MAX_BYTES:,} bytes")])
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"not UTF-8 text: it holds the byte {error.object[error.start]:#04x}"
            raise WorkflowError([Problem(file, line, None, "", message)]) from None
    source = Source(file, content, cpu_seconds)
    builder = _Builder(source)
    try:
        builder.build()
        return source
    except MarkedYAMLError as error:
        mark, message, hint = explain(error, source.language)
        builder.refuse_at(mark, message, find_unindented_block(content, mark) or hint)
    except ReaderError as error:
        builder.refuse_character(error.position)
    except WorkflowError:
        raise
    # Malformed input makes ruamel raise more than its own errors.
    except Exception as error:
        reason = str(error).strip().splitlines() or ["it cannot be read"]
        builder.refuse_at(None, f"not {source.language}: {reason[0]}")
    raise WorkflowError(source.problems)


class _Open:
    """A mapping or list that is being read."""

    __slots__ = ("anchor", "first_value", "height", "key", "key_mark", "merges", "path", "value")

    def __init__(self, value: Any, path: Path, anchor: str | None, first_value: int) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.first_value = first_value
        self.height = 1
        """Its levels of nesting, itself and aliases included."""
        self.key: Any = _NO_KEY
        self.key_mark: Any = None
        self.merges: list[tuple[Any, Any]] = []


_NO_KEY: Final = object()
_AGAIN: Final = "(again)"


class _Builder:
    """Builds a source's value from events and collects problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        """By name: a value, the number of values in it, and its height."""
        self._count = 0

    def build(self) -> None:
        documents = 0
        for event in events(self.source.text):
            self.source.check_time()
            if isinstance(event, ScalarEvent):
                value, size = self._scalar(event), 1
                if event.anchor:
                    self._anchors[event.anchor] = (value, size, 0)
            elif isinstance(event, MappingStartEvent | SequenceStartEvent):
                self._open(event)
                continue
            elif isinstance(event, MappingEndEvent | SequenceEndEvent):
                self._close()
                continue
            elif isinstance(event, AliasEvent):
                value, size, height = self._alias(event)
                self._raise_height(height, event.start_mark)
            else:
                documents += isinstance(event, DocumentStartEvent)
                if documents > 1:
                    self._stop(event.start_mark, "a file holds one workflow, not several documents")
                continue
            self._count_values(size, event.start_mark)
            self._place(value, event.start_mark)

    def refuse_at(self, mark: Any, message: str, hint: str | None = None) -> None:
        """Add a problem at one of ruamel's marks."""
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        self._refuse(line, column, message, hint)

    def refuse_character(self, position: int) -> None:
        """Add a problem for a character that YAML does not allow."""
        text = self.source.text
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        character = text[position : position + 1]
        message = f"not {self.source.language}: it holds the control character {character!r}"
        self._refuse(line, column, message, None)

    def _refuse(self, line: int | None, column: int | None, message: str, hint: str | None) -> None:
        key = cut(write_key(self._path()))
        self.source.problems.append(
            Problem(self.source.file, line, column, key, cut(message), hint)
        )

    def _stop(self, mark: Any, message: str, hint: str | None = None) -> None:
        self.refuse_at(mark, message, hint)
        raise WorkflowError(self.source.problems)

    def _path(self) -> Path:
        """Return the path of the next value."""
        if not self._stack:
            return ()
        top = self._stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return top.path if top.key is _NO_KEY else (*top.path, top.key)

    def _count_values(self, size: int, mark: Any) -> None:
        self._count += size
        if self._count > MAX_VALUES:
            self._stop(mark, f"more than {MAX_VALUES:,} values, counting what aliases repeat")

    def _open(self, event: Any) -> None:
        self._refuse_tag(event)
        self._raise_height(1, event.start_mark)
        self._count_values(1, event.start_mark)
        value: Any = {} if isinstance(event, MappingStartEvent) else []
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is _NO_KEY:
            self._refuse_key(event.start_mark)
        path = self._path()
        if path in self.source.marks:
            # A repeated key must not move the marks of the first.
            path = (*path, _AGAIN)
        opened = _Open(value, path, event.anchor, self._count)
        self._place(value, event.start_mark)
        self._stack.append(opened)

    def _raise_height(self, height: int, mark: Any) -> None:
        """Add a value of this height to what is open; aliases could nest without a bound."""
        if len(self._stack) + height > MAX_DEPTH:
            self._stop(mark, f"nested deeper than {MAX_DEPTH} levels")
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, height + 1)

    def _refuse_key(self, mark: Any) -> None:
        if self.source.text[mark.index - 1 : mark.index + 1] == "{{":
            hint = 'put a template in quotes: "{{ ... }}"'
            self._stop(mark, "braces that are not in quotes begin a mapping", hint)
        self._stop(mark, "a key is text, not a list or a mapping")

    def _close(self) -> None:
        finished = self._stack[-1]
        for merged, mark in finished.merges:
            self._merge(finished.value, merged if isinstance(merged, list) else [merged], mark)
        self._stack.pop()
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, finished.height + 1)
        if finished.anchor:
            size = self._count - finished.first_value + 1
            self._anchors[finished.anchor] = (finished.value, size, finished.height)

    def _merge(self, target: dict[str, Any], merged: list[Any], mark: Any) -> None:
        for mapping in merged:
            if not isinstance(mapping, dict):
                self.refuse_at(mark, "<< takes a mapping, or a list of mappings")
                return
            for key, value in mapping.items():
                target.setdefault(key, value)

    def _alias(self, event: Any) -> tuple[Any, int, int]:
        # An anchor is known once its value is complete, so no value can contain itself.
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            self._stop(event.start_mark, f"*{event.anchor} is used before &{event.anchor} is set")
        assert anchored is not None
        return anchored

    def _place(self, value: Any, mark: Any) -> None:
        """Put a value in its place: at the top, in a list, or as a key or its value."""
        line, column = mark.line + 1, mark.column + 1
        if not self._stack:
            self.source.value = value
            self.source.marks[()] = (line, column, line, column)
            return
        top = self._stack[-1]
        if isinstance(top.value, list):
            self.source.marks[(*top.path, len(top.value))] = (line, column, line, column)
            top.value.append(value)
        elif top.key is _NO_KEY:
            top.key, top.key_mark = self._key(value, mark), mark
        else:
            self._put(top, value, (top.key_mark.line + 1, top.key_mark.column + 1, line, column))
            top.key = _NO_KEY

    def _put(self, top: _Open, value: Any, mark: Mark) -> None:
        if top.key == "<<":
            # A list is still empty here: it is read when the mapping is closed.
            top.merges.append((value, top.key_mark))
            return
        if top.key in top.value:
            first = self.source.marks[(*top.path, top.key)][0]
            self.refuse_at(top.key_mark, f"{top.key!r} is already set in line {first}")
            return
        self.source.marks[(*top.path, top.key)] = mark
        top.value[top.key] = value

    def _key(self, value: Any, mark: Any) -> str:
        if isinstance(value, str):
            return value
        shown = json.dumps(value)
        self.refuse_at(mark, f"a key is text, and {shown} is not; put it in quotes")
        return shown

    def _scalar(self, event: Any) -> Any:
        self._refuse_tag(event)
        text: str = event.value
        if event.style is None or event.style == "":
            return self._plain(text, event.start_mark)
        if "\0" in text or not (text.isascii() or _is_storable(text)):
            self.refuse_at(event.start_mark, "the text contains a character that cannot be stored")
            return ""
        return text

    def _plain(self, text: str, mark: Any) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
            if len(text) > 400:
                self.refuse_at(mark, "the number is too large")
                return 0
            return int(text, 0 if text[:2] in ("0o", "0x") else 10)
        if text in _NO_NUMBERS or (_NUMBER.fullmatch(text) and abs(float(text)) == float("inf")):
            self.refuse_at(mark, f"{text[:40]} is not a number that can be stored")
            return 0
        return float(text) if _NUMBER.fullmatch(text) else text

    def _refuse_tag(self, event: Any) -> None:
        # A lone "!" only means "not a plain scalar"; any other tag asks for a type.
        if event.tag is not None and str(event.tag) != "!":
            self.refuse_at(event.start_mark, f"tags are not used in workflow files: {event.tag}")


def _is_storable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
