"""Ids, keys, hashes and randomness: the one place where they are made."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_uuid7: Callable[[], Any] | None = None
"""Makes ids, once the library is loaded."""


class Source:
    """Where ids and random numbers come from; a simulator puts a seeded one in its place."""

    def new_id(self) -> str:
        """Return a new time-ordered id."""
        global _uuid7  # noqa: PLW0603 - to import it for every id takes longer than to make the id
        if _uuid7 is None:
            from uuid_utils import uuid7

            _uuid7 = uuid7
        return str(_uuid7())

    def fraction(self) -> float:
        """Return a number in [0, 1)."""
        import random

        return random.random()


_source = Source()


@contextmanager
def drawn_from(source: Source) -> Iterator[None]:
    """Let ids and random numbers of this process come from another source."""
    global _source  # noqa: PLW0603 - one source per process, as there is one clock
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before


def new_id() -> str:
    """Return a new time-ordered id (UUIDv7), so that inserts stay at the end of every index."""
    return _source.new_id()


def first_id_at(instant_us: int) -> str:
    """Return a key that sorts before every id made at an instant or later, and after all older ones."""
    milliseconds = f"{max(0, instant_us) // 1000:012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}"


def new_token() -> str:
    """Return a new secret that cannot be guessed."""
    import secrets

    return f"agent_{secrets.token_urlsafe(32)}"


def random_fraction() -> float:
    """Return a number in [0, 1), for jitter."""
    return _source.fraction()


def canonical_json(value: Any) -> str:
    """Write a value as JSON in the one way that equal values share."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def request_hash(request: Any) -> str:
    """Return the stable hash of a call's request."""
    return hashlib.sha256(canonical_json(request).encode("utf-8")).hexdigest()


def content_hash(content: str | bytes) -> str:
    """Return the hash that names a piece of content."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


def idempotency_key(
    task_id: str, step_id: str, attempt: int, action: str, stable_request_hash: str
) -> str:
    """Return the ledger's key of one call of one attempt.

    `action` carries the call's number (`http.post#2`), so that two equal calls are two. The
    attempt is part of it, so that an unknown never blocks a legitimate retry.
    """
    return _digest(task_id, step_id, str(attempt), action, stable_request_hash)


def remote_key(
    origin_id: str, step: str, action: str, stable_request_hash: str, failures: int
) -> str:
    """Return the `Idempotency-Key` for a remote.

    It stays the same after an unknown, so that the remote recognizes the repeated request, and changes
    after a definite failure, which the remote must not answer from its record.
    """
    return _digest(origin_id, step, action, stable_request_hash, str(failures))


def _digest(*fields: str) -> str:
    """Hash fields with their lengths before them, so that no two lists of fields run together."""
    digest = hashlib.sha256()
    for field in fields:
        data = field.encode("utf-8")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
