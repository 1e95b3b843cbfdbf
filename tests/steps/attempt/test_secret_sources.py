"""Secrets that take long: read once for all that wait, kept for a while, and never waited for too long."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from agent.core.files.environment_file import EnvironmentFile
from agent.core.files.file_trust import Trust
from agent.core.redaction import everywhere
from agent.steps.attempt import secret_sources
from agent.steps.attempt.secret_sources import SecretReadError, SecretSources, SlowReads
from agent.steps.attempt.secrets import Secrets, SecretWatcher, secret_watcher
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Outcome, Returned, Succeeded
from agent.workflows.graph import Graph, Step
from tests.support.attempt import Trial, run, until

ALL = frozenset({()})


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowReads:
    """Return the slow reads of this process, with nothing read yet."""
    reads = SlowReads()
    monkeypatch.setattr(secret_sources.sources, "_slow", reads)
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


@pytest.fixture
def dotenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the `.env` file of this process, with one value."""
    path = tmp_path / ".env"
    path.touch(mode=0o600)
    path.write_text("ONLY_HERE=dotenv-hunter2\nSHADOWED=dotenv-shadowed\n")
    monkeypatch.delenv("ONLY_HERE", raising=False)
    monkeypatch.setenv("SHADOWED", "real-shadowed")
    monkeypatch.setattr(
        secret_sources.sources, "environment_file", EnvironmentFile(path, Trust), raising=True
    )
    return path


def shell(script: str, env: dict[str, str], **inputs: str) -> Trial:
    """Return a `shell` step that may inherit everything a test is about."""
    config = {"script": script, "env": env, "inherit": ["ONLY_HERE", "SHADOWED"], "effect": "none"}
    return Trial("shell", config, inputs=dict(inputs))


def stdout(trial: Trial) -> str:
    """Run an attempt and return what its command printed."""
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded), outcome
    return str(outcome.output["stdout"])


def test_the_file_serves_references_and_is_never_exported(dotenv: Path) -> None:
    """A command gets what its `env` names and nothing else; the real environment wins."""
    script = 'echo "${#A} $A $B ${ONLY_HERE-unset}"; env | grep -c hunter2 || true'
    trial = shell(script, {"A": "env:ONLY_HERE", "B": "env:SHADOWED"})
    assert stdout(trial) == "14 [redacted] [redacted] unset\n1\n", "only A has it"
    assert "ONLY_HERE" not in os.environ
    assert everywhere.redact("dotenv-shadowed") == "dotenv-shadowed", "it is not what counts"
    dotenv.write_text("ONLY_HERE=replaced-hunter3\n")
    secret_watcher._checked_at = float("-inf")
    assert stdout(trial) == "16 [redacted] [redacted] unset\n0\n", "the new one"


def test_references_count_only_in_the_definition(slow: SlowReads, dotenv: Path) -> None:
    """What a template gives is data, beside a reference that is resolved."""
    slow.readers = {"exec": lambda _: "exec-value-1", "keyring": lambda _: "keyring-value"}
    for given in ("exec:a", "keyring:a/b", "env:ONLY_HERE"):
        env = {"A": "exec:a", "D": "{{ inputs.given }}"}
        assert stdout(shell('echo "$D ${#A}"', env, given=given)) == f"{given} 12\n"


def test_a_step_that_cannot_get_its_secret_fails_before_its_effect(slow: SlowReads) -> None:
    """No intent is recorded, and the failure is definite: a prompt is not repeated by retries."""
    slow.readers["exec"] = lambda _: _fail()
    trial = Trial("shell", {"argv": ["true"], "env": {"A": "exec:a"}})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert (outcome.error.code, outcome.error.message) == ("secret_missing", "declined")
    assert trial.journal.intents == []


def test_secrets_are_known_before_any_step_of_the_workflow_runs(slow: SlowReads) -> None:
    """Also in steps that do not use them, in every form that redaction knows."""
    slow.readers["exec"] = lambda _: "exec-hunter2-value"
    trial = shell("printf exec-hunter2-value | base64; echo exec-hunter2-value", {})
    later = Step(name="later", kind="shell", config={"argv": ["x"], "env": {"A": "exec:a"}})
    trial.graph = Graph(name="trial", steps=[trial.step, later])
    assert stdout(trial) == "[redacted]\n[redacted]\n"


def test_an_attempt_that_waits_for_a_prompt_can_be_stopped(slow: SlowReads) -> None:
    """A shutdown does not wait for a person."""
    started, go = threading.Event(), threading.Event()

    def read(_: str) -> str:
        started.set()
        return str(go.wait(30))

    slow.readers["exec"] = read
    trial = Trial("shell", {"argv": ["true"], "env": {"A": "exec:a"}})

    async def stopped() -> Outcome:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(started.is_set)
        trial.signals.stop_for("shutdown")
        return await attempt

    assert run(stopped()) == Returned("shutdown")
    go.set()


def test_a_secret_that_is_read_again_blocks_no_other_step(slow: SlowReads) -> None:
    """A prompt in the middle of a daemon's life: the event loop runs on."""
    started, go = threading.Event(), threading.Event()
    slow.readers["exec"] = lambda _: "first-value"
    trial = shell('printf "%s" "${#A}"', {"A": "exec:a"})
    assert stdout(trial) == "11"

    def read(_: str) -> str:
        started.set()
        return "unblocked" if go.wait(5) else "blocked"

    slow.readers["exec"] = read
    slow.clear()

    async def both() -> Outcome:
        attempt = asyncio.ensure_future(trial.attempt())
        await until(started.is_set)
        go.set()
        return await attempt

    outcome = run(both())
    assert isinstance(outcome, Succeeded)
    assert outcome.output["stdout"] == str(len("unblocked"))
