"""Secrets that take long: read once for all that wait, kept for a while, and never waited for too long."""

import threading
import time

import pytest

from agent.core.redaction import everywhere
from agent.steps.attempt import secret_sources
from agent.steps.attempt.secret_sources import SecretReadError, SecretSources, SlowReads
from agent.steps.attempt.secrets import Secrets, SecretWatcher
from agent.steps.types.errors import DefiniteFailure
from tests.support.attempt import run

ALL = frozenset({()})


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowReads:
    """Return the slow reads of this process, with nothing read yet."""
    reads = SlowReads()
    monkeypatch.setattr(secret_sources.sources, "slow", reads)
    return reads


def test_a_secret_is_read_once_and_kept(slow: SlowReads, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt does not appear for every step; after its time the secret is read again."""
    reads: list[str] = []
    slow.readers["exec"] = lambda name: reads.append(name) or f"value-{len(reads)}"  # type: ignore[func-returns-value]
    values = [Secrets().resolve("Bearer exec:a", ALL) for _ in range(3)]
    assert (values, reads) == (["Bearer value-1"] * 3, ["a"])
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 299.0)
    assert Secrets().resolve("exec:a", ALL) == "value-1"
    monkeypatch.setattr(time, "monotonic", lambda: now + 301.0)
    assert Secrets().resolve("exec:a", ALL) == "value-2"
    assert everywhere.redact("value-1 value-2") == "[redacted] [redacted]", "both stay hidden"


def test_those_who_wait_together_share_one_read(slow: SlowReads) -> None:
    """Also a thread and an event loop: one prompt serves both."""
    started, go = threading.Event(), threading.Event()
    count = 0

    def read(_: str) -> str:
        nonlocal count
        count += 1
        started.set()
        assert go.wait(30)
        return "shared-value"

    slow.readers["keyring"] = read
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(Secrets().resolve("keyring:a/b", ALL)))
    waiting.start()
    assert started.wait(30)

    async def both() -> None:
        secrets = Secrets()
        slow.start("keyring", "a/b").add_done_callback(lambda _: None)
        go.set()
        found.append(await secrets.read(["keyring:a/b", "x"], frozenset({(0,)})))

    run(both())
    waiting.join(30)
    assert (found.count("shared-value"), found.count(["shared-value", "x"]), count) == (1, 1, 1)


def test_a_failure_is_kept_for_a_short_time(
    slow: SlowReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that start together ask a person once; soon after, the next one asks again."""
    count = 0

    def refuse(name: str) -> str:
        nonlocal count
        count += 1
        raise SecretReadError(f"exec:{name} was declined")

    slow.readers["exec"] = refuse
    for _ in range(3):
        with pytest.raises(DefiniteFailure, match="exec:a was declined") as caught:
            Secrets().resolve("exec:a", ALL)
        assert not caught.value.may_retry
    assert count == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11.0)
    with pytest.raises(DefiniteFailure):
        Secrets().resolve("exec:a", ALL)
    assert count == 2


def test_a_defect_of_a_library_shows_no_text_of_its_own(slow: SlowReads) -> None:
    """Its message may contain the secret."""

    def fail(_: str) -> str:
        raise RuntimeError("hunter2-value")

    slow.readers["keyring"] = fail
    with pytest.raises(DefiniteFailure, match=r"keyring:a/b cannot be read: RuntimeError$"):
        Secrets().resolve("keyring:a/b", ALL)


def test_a_read_that_hangs_holds_up_only_its_timeout(slow: SlowReads) -> None:
    """It fails by its timeout, blocks no loop, costs one thread, and still counts when it ends."""
    go = threading.Event()
    slow.readers["keyring"] = lambda _: str(go.wait(30))
    slow.timeout_seconds = 0.05
    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(DefiniteFailure, match=r"not read within 0\.05 s"):
            run(Secrets().read("keyring:a/b", ALL))
        with pytest.raises(DefiniteFailure, match=r"not read within 0\.05 s"):
            Secrets().resolve("keyring:a/b", ALL)
    assert threading.active_count() <= before + 1
    go.set()
    assert slow.start("keyring", "a/b").result(30) == "True"
    assert Secrets().resolve("keyring:a/b", ALL) == "True"


def test_hanging_reads_are_bounded(slow: SlowReads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later reads may have more luck than the one that hangs, but not without end."""
    go = threading.Event()
    slow.readers["keyring"] = lambda _: str(go.wait(30))
    first = slow.start("keyring", "a/b")
    now = time.monotonic()
    futures = []
    for number in range(1, 8):
        monkeypatch.setattr(time, "monotonic", lambda at=now + number * 1000: at)
        futures.append(slow.start("keyring", "a/b"))
    assert len({first, *futures}) == 4
    go.set()
    for future in (first, *futures):
        assert future.result(30) == "True"


def test_within_an_attempt_a_secret_has_one_value(slow: SlowReads) -> None:
    """What was prefetched serves every later use, also a failure: nothing blocks in between."""
    slow.readers["exec"] = lambda name: "prefetched" if name == "a" else _fail()
    secrets = Secrets()
    run(secrets.prefetch({"x": "exec:a", "y": "exec:b"}, frozenset({("x",), ("y",)})))
    slow.clear()
    slow.readers.clear()
    assert secrets.resolve("exec:a", ALL) == "prefetched"
    with pytest.raises(DefiniteFailure, match="declined"):
        secrets.resolve("exec:b", ALL)


def _fail() -> str:
    raise SecretReadError("declined")


def test_watched_references_are_read_once_in_a_process(slow: SlowReads) -> None:
    """Before the first attempt; adding one does not wait, and one that fails is no error."""
    reads: list[str] = []

    def read(name: str) -> str:
        reads.append(name)
        return "watched-value" if name == "a" else _fail()

    slow.readers["exec"] = read
    watcher = SecretWatcher()
    watcher.add({"a": "Bearer exec:a", "b": "exec:b"})
    assert (reads, watcher.has_unread) == ([], True)
    assert everywhere.redact("watched-value") == "watched-value"
    run(watcher.read_unread())
    slow.clear()
    watcher.refresh()
    run(watcher.read_unread())
    assert (sorted(reads), watcher.has_unread) == (["a", "b"], False)
    assert everywhere.redact("watched-value") == "[redacted]"


def test_a_source_that_was_not_set_up_is_an_error(slow: SlowReads) -> None:
    """A process without a configuration reads no keyring and runs no command."""
    with pytest.raises(DefiniteFailure, match="no source exec:"):
        Secrets().resolve("exec:a", ALL)
    assert SecretSources().environment_value("SURELY_NOT_SET_HERE") is None
