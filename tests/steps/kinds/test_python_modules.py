"""Loading an SDK takes as long as it takes: the step's time begins afterwards, and others go on."""

import asyncio
import sys
import time
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import Any

import pytest

from agent.config.models import ModelSettings
from agent.models.registry import ModelRegistry, model_of
from agent.steps.spec.registry import KINDS
from agent.steps.types.outcome import Outcome, Succeeded
from tests.support.attempt import Trial, run
from tests.support.model_servers import KEY, Provider, Say, providing

LOADING_SECONDS = 1.5
STEP_SECONDS = 1.0


class SlowFinder(MetaPathFinder):
    """Makes the import of one module slow."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == self.name:
            self.count += 1
            time.sleep(LOADING_SECONDS)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Return a stand-in for a provider."""
    monkeypatch.setenv("KEY_OF_TESTS", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with providing() as provider:
        yield provider


def slow_import(monkeypatch: pytest.MonkeyPatch, name: str) -> SlowFinder:
    """Let a module be imported again, slowly."""
    monkeypatch.delitem(sys.modules, name, raising=False)
    finder = SlowFinder(name)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    return finder


@pytest.mark.measured
@pytest.mark.parametrize("kind", ["llm", "agent"])
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_the_first_attempt_after_a_start_asks_its_model(
    kind: str, provider: str, server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SDK that loads longer than the step may take: the request is sent at the first attempt."""
    given = {"provider": provider, "base_url": server.url(provider), "key": "env:KEY_OF_TESTS"}
    model = model_of("it", ModelSettings(**given))  # type: ignore[arg-type]
    config = {"llm": {"prompt": "hello"}, "agent": {"goal": "hello"}}[kind]

    def ask() -> Outcome:
        server.replies.append(Say("hello"))
        trial = Trial(kind, {**config, "max_tokens": 50}, {"timeout_seconds": STEP_SECONDS})
        trial.services.models = ModelRegistry({"it": model}, default="it")
        return run(trial.attempt())

    # What else is loaded at a first use is loaded now: from here on only the SDK is slow.
    ask()
    finder = slow_import(monkeypatch, f"agent.models.{provider}")
    assert ask() == Succeeded("hello")
    assert finder.count == 1


def test_other_attempts_go_on_while_one_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a kind is imported in a thread, before the attempt's time begins."""
    kind = KINDS["http"]
    monkeypatch.setattr(kind, "_handler", None)
    finder = slow_import(monkeypatch, kind.module)

    async def main() -> None:
        beats = 0
        config = {"get": "http://127.0.0.1:1/"}
        attempt = asyncio.ensure_future(
            Trial("http", config, {"timeout_seconds": STEP_SECONDS}).attempt()
        )
        while not attempt.done():
            beats += 1
            await asyncio.sleep(0.01)
        outcome = attempt.result()
        assert outcome.error.code != "timeout"  # type: ignore[union-attr]
        assert finder.count == 1
        assert beats > LOADING_SECONDS / 0.01 / 4

    run(main())
