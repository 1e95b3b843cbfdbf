"""Secrets by reference: found in definitions, read at execution, hidden in all that is written."""

import base64
import io
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import structlog

from agent import bootstrap
from agent.config.channels import ChannelSettings, TelegramSettings, WebhookSettings
from agent.config.models import McpSettings, ModelSettings
from agent.config.settings import Settings
from agent.core.logs import logging
from agent.steps.attempt.context import StepContext
from agent.steps.attempt.secrets import Secrets, SecretWatcher, references, secret_watcher
from agent.steps.process.output_capture import OutputCapture
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Failed, Outcome, Retry, Succeeded
from agent.workflows.graph import Graph, Step
from tests.support.attempt import Trial, callable_name, run


def test_references_are_found_where_they_stand() -> None:
    """A whole text, or an authorization word before it; other texts are only texts."""
    value = {
        "a": "env:TOKEN",
        "b": ["plain", "bearer file:/run/token"],
        "c": {
            "d": "see file:notes",
            "e": "file:///etc/passwd",
            "f": "{{ env:X }}",
            "g": "env:prod",
        },
    }
    assert set(references(value)) == {("a",), ("b", 1)}


def test_a_secret_is_hidden_in_every_form_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, line by line, inside JSON and inside an address."""
    monkeypatch.setenv("TOKEN", 'p"ss/w rd')
    key = tmp_path / "key"
    key.write_text("line-one\nline-two\n")
    secrets = Secrets()
    given = {"t": "Basic env:TOKEN", "k": f"file:{key}", "data": "env:TOKEN"}
    resolved = secrets.resolve(given, frozenset({("t",), ("k",)}))
    assert resolved == {"t": 'Basic p"ss/w rd', "k": "line-one\nline-two", "data": "env:TOKEN"}
    written = ['x p"ss/w rd', 'p\\"ss/w rd', "p%22ss%2Fw%20rd", "p%22ss%2Fw+rd", "line-two"]
    for text in written:
        assert secrets.redact(text).removeprefix("x ") == "[redacted]"
    assert secrets.redact_value({"line-one": [{"k": "line-two"}, 1, None]}) == {
        "[redacted]": [{"k": "[redacted]"}, 1, None]
    }


TOKEN = "tok/en+of another"


def leaking(**given: Any) -> tuple[Trial, Outcome]:
    """Run a step that writes a secret, which was not given to it, wherever it can."""

    async def leak(ctx: StepContext) -> Any:
        secret = os.environ["OTHER_TOKEN"]
        ctx.log(f"have {secret}")
        await ctx.save({"secret": secret})
        await ctx.call("act", {"secret": secret}, lambda: {"answer": secret})
        if given.get("raised") is not None:
            raise given["raised"](f"no: {secret}")
        return [secret, base64.b64encode(f"user:{secret}".encode()).decode()]

    trial = Trial("python", {"call": callable_name(leak)})
    return trial, run(trial.attempt())


def shown(trial: Trial, outcome: Outcome) -> str:
    """Return all that an attempt has written."""
    journal = trial.journal
    return repr([journal.intents, journal.results, journal.checkpoints, journal.logs, outcome])


CONFIGURED = {
    "model": Settings(models={"m": ModelSettings(provider="openai", key="env:OTHER_TOKEN")}),
    "channel": Settings(
        channels=ChannelSettings(telegram=TelegramSettings(token="env:OTHER_TOKEN"))
    ),
    "webhook": Settings(
        channels=ChannelSettings(
            webhook=WebhookSettings(url="https://example.com", secret="env:OTHER_TOKEN")
        )
    ),
    "mcp": Settings(mcp={"s": McpSettings(command="x", env={"TOKEN": "env:OTHER_TOKEN"})}),
    "mcp header": Settings(
        mcp={"s": McpSettings(url="https://x", headers={"Authorization": "Bearer env:OTHER_TOKEN"})}
    ),
}


@pytest.mark.parametrize("where", CONFIGURED)
def test_secrets_of_the_configuration_are_redacted_in_every_step(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A step that gets hold of another secret writes it nowhere."""
    monkeypatch.setenv("OTHER_TOKEN", TOKEN)
    trial, outcome = leaking()
    assert TOKEN in shown(trial, outcome), "it does write it where nothing hides it"
    bootstrap.redact_configured_secrets(CONFIGURED[where])
    trial, outcome = leaking()
    assert isinstance(outcome, Succeeded)
    encoded = base64.b64encode(f"user:{TOKEN}".encode()).decode()[8:-4]
    text = shown(trial, outcome)
    assert TOKEN not in text and encoded not in text
    assert text.count("[redacted]") >= 6


@pytest.mark.parametrize("error", [ValueError, DefiniteFailure, SystemError])
def test_errors_show_no_secret(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """Neither a message nor a traceback does."""
    monkeypatch.setenv("OTHER_TOKEN", TOKEN)
    bootstrap.redact_configured_secrets(CONFIGURED["model"])
    trial, outcome = leaking(raised=error)
    assert isinstance(outcome, Failed | Retry)
    assert "no: [redacted]" in outcome.error.message
    assert TOKEN not in shown(trial, outcome)


def test_secrets_of_other_steps_are_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also before that step has run."""
    monkeypatch.setenv("OTHER_TOKEN", TOKEN)
    config = {"get": "https://example.com", "headers": {"X": "Bearer env:OTHER_TOKEN"}}
    later = Step(name="later", kind="http", config=config)

    def tell() -> str:
        return os.environ["OTHER_TOKEN"]

    trial = Trial("python", {"call": callable_name(tell)})
    graph = trial.claimed().graph
    trial.claim["graph"] = Graph(name=graph.name, steps=[*graph.steps, later])
    assert run(trial.attempt()) == Succeeded("[redacted]")


def test_the_log_shows_nothing_that_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's own lines go through the same redaction."""
    monkeypatch.setenv("OTHER_TOKEN", TOKEN)
    bootstrap.redact_configured_secrets(CONFIGURED["channel"])
    stream = io.StringIO()
    logging.configure("json", "info", stream)
    structlog.get_logger("x").info("sent", url=f"https://x/bot{TOKEN.replace('/', '%2f')}/send")
    structlog.reset_defaults()
    assert "https://x/bot[hidden]/send" in stream.getvalue()


def test_replaced_secrets_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written later, or again, is read again; a missing one is no error."""
    key = tmp_path / "key"
    watched = SecretWatcher()
    watched.add({"a": f"file:{key}", "b": "env:NOT_SET_HERE", "c": f"file:{tmp_path}"})
    assert Secrets().redact("first-value second-value") == "first-value second-value"
    key.write_text("first-value\n")
    watched.refresh()
    assert Secrets().redact("first-value second-value") == "[redacted] second-value"
    key.write_text("second-value, longer\n")
    monkeypatch.setenv("NOT_SET_HERE", "third-value")
    watched._checked_at = float("-inf")
    watched.refresh()
    given = "first-value, second-value, longer, third-value"
    assert Secrets().redact(given) == "[redacted], [redacted], [redacted]"


@pytest.mark.parametrize("reference", ["file:~no-such-user/key", "file:/run/\0/key"])
def test_a_path_that_cannot_be_is_a_missing_secret(reference: str) -> None:
    """The home of an unknown user must not keep workflows from being read, nor other steps from running."""
    watching = SecretWatcher()
    watching.add({"key": reference})
    watching.refresh()
    with pytest.raises(DefiniteFailure, match="cannot be read"):
        Secrets().resolve(reference, frozenset({()}))


def test_a_pipe_is_not_read_before_its_time(tmp_path: Path) -> None:
    """To watch a reference never waits, and takes nothing away."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    secret_watcher.add(f"file:{pipe}")
    assert secret_watcher.references == [f"file:{pipe}"]


@pytest.mark.parametrize("size", [1, 7, 100, 8192, 65_536])
def test_a_secret_is_hidden_where_output_comes_in_pieces(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """However a long line is cut into pieces, no form of the secret is left."""
    monkeypatch.setenv("OTHER_TOKEN", TOKEN)
    bootstrap.redact_configured_secrets(CONFIGURED["model"])
    encoded = base64.b64encode(TOKEN.encode()).decode()
    quoted = quote(TOKEN, safe="").lower()
    line = "".join(f"{'x' * 997} {form} " for form in (TOKEN, encoded, quoted) * 12)
    told: list[str] = []
    capture = OutputCapture(10**6, Secrets(), told.append)
    for start in range(0, len(line), size):
        capture.add(line[start : start + size])
    kept = capture.finish()
    assert kept == "".join(told)
    assert kept == f"{'x' * 997} [redacted] " * 36
