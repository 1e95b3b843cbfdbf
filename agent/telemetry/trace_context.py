"""The ids of traces and spans, and the header `traceparent` of W3C Trace Context.

All ids are hashes of ids that are on record: every process computes the same.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1
KEY: Final = "traceparent"
"""The header, and the key under which what started a task has it."""


@dataclass(frozen=True, slots=True)
class SpanContext:
    """A span, as others refer to it."""

    trace_id: int
    span_id: int
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The header that carries it to another program."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"

    @property
    def log_keys(self) -> dict[str, str]:
        """The keys by which a log line refers to it."""
        return {"trace_id": f"{self.trace_id:032x}", "span_id": f"{self.span_id:016x}"}

    def child(self, *names: object) -> "SpanContext":
        """Return a span of the same trace, known by names that are on record."""
        return SpanContext(self.trace_id, span_id_of(*names), self.is_sampled)


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """The trace of a task: its own, or the caller's."""

    root: SpanContext
    """The span of the whole task."""
    parent: SpanContext | None
    """The caller's span, if the task was started with a `traceparent`."""


def parse(header: str | None) -> SpanContext | None:
    """Read a `traceparent`; None if there is none, or if it breaks the rules of the standard."""
    match = None if header is None else _TRACEPARENT.fullmatch(header.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16):
        return None
    if not int(span_id, 16):
        return None
    return SpanContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))


def trace_of(task_id: str, trigger: Any, sample_ratio: float = 1.0) -> TaskTrace:
    """Return the trace of a task, by its id and what started it.

    A caller decides for its own traces whether they are sampled.
    """
    parent = parse(trigger.get(KEY)) if isinstance(trigger, dict) else None
    if parent is not None:
        return TaskTrace(parent.child("task", task_id), parent)
    trace_id = _hashed(("trace", task_id), 16)
    is_sampled = (trace_id & (2**64 - 1)) < sample_ratio * 2**64
    return TaskTrace(SpanContext(trace_id, span_id_of("task", task_id), is_sampled), None)


def span_id_of(*names: object) -> int:
    """Return the id of a span that is known by some names."""
    return _hashed(names, 8)


def _hashed(names: tuple[object, ...], size: int) -> int:
    text = "\0".join(map(str, names))
    # Zero is not allowed as an id.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), "big") or 1
