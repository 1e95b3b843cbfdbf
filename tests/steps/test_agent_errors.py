"""An agent's model that fails: each way is told as what it is, before and in the middle of a loop."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from agent.config_models import ModelSettings
from agent.models.catalog import Catalog, model_of
from agent.steps.outcome import Failed, Outcome, Retry, Succeeded
from tests.models.servers import (
    KEY,
    HangUp,
    Provider,
    Raw,
    Reply,
    Say,
    Stall,
    error,
    providing,
)
from tests.steps.harness import Trial, callable_name, run

LOOK = Say("", tools=[("use_1", "look", {})])


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing stand between the SDKs and loopback."""
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KEY_OF_TESTS", KEY)


@pytest.fixture
def server() -> Iterator[Provider]:
    """Return a stand-in for a provider."""
    with providing() as provider:
        yield provider


def trial(provider: str, url: str, **settings: Any) -> Trial:
    """Return a trial of an agent with one tool that only reads."""
    given = {"provider": provider, "base_url": url, "key": "env:KEY_OF_TESTS", **settings}
    tools = {"look": {"python": callable_name(lambda: "seen"), "effect": "none"}}
    made = Trial("agent", {"goal": "look", "tools": tools, "max_tokens": 50})
    made.services.models = Catalog({"it": model_of("it", ModelSettings(**given))}, default="it")
    return made


def shown(made: Trial, outcome: Outcome) -> str:
    """Return all that is written down of an attempt."""
    return repr((made.journal.intents, made.journal.results, made.journal.log_text, outcome))


TRIED_AGAIN: list[tuple[Reply, str]] = [
    (error(429, f"slow down, {KEY}", {"Retry-After": "7"}), "rate_limited"),
    (error(500, KEY), "status_500"),
    (error(503), "status_503"),
    (error(529), "status_529"),
    (Raw(200, b'{"content": '), "malformed_answer"),
    (Raw(200, b'{"id": "cut', promised=5000), "transport"),
    (HangUp(), "transport"),
]
FINAL: list[tuple[Reply, str]] = [
    (error(400, KEY), "status_400"),
    (error(401, f"bad key {KEY}"), "status_401"),
    (error(403), "status_403"),
    (error(404), "status_404"),
    (error(413), "status_413"),
    (error(400, "prompt is too long: maximum context length"), "context_exceeded"),
]


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize("turn", [1, 2])
def test_failures_in_a_loop(server: Provider, provider: str, turn: int) -> None:
    """What may get better is tried again from where the loop stood, and the rest fails at once."""
    for reply, code in TRIED_AGAIN + FINAL:
        server.replies = [*([LOOK] if turn == 2 else []), reply]
        server.requests.clear()
        made = trial(provider, server.url(provider))
        outcome = run(made.attempt())
        assert isinstance(outcome, Retry if (reply, code) in TRIED_AGAIN else Failed), code
        assert outcome.error.code == code
        assert KEY not in shown(made, outcome)
        if isinstance(outcome, Failed):
            continue
        assert outcome.delay_seconds == (7 if code == "rate_limited" else None)
        server.replies = [*([LOOK] if turn == 1 else []), Say("done")]
        assert run(made.attempt()) == Succeeded("done")
        assert len(server.requests) == 3, "what was said is not asked again"


@pytest.mark.parametrize(
    ("provider", "stop", "code"),
    [
        ("anthropic", "refusal", "refusal"),
        ("anthropic", "max_tokens", "max_tokens"),
        ("anthropic", "model_context_window_exceeded", "context_exceeded"),
        ("openai", "content_filter", "refusal"),
        ("openai", "length", "max_tokens"),
    ],
)
def test_answers_that_end_a_loop(server: Provider, provider: str, stop: str, code: str) -> None:
    """A model that declines, is cut or has no room left ends the step under a code of its own."""
    server.replies = [LOOK, Say("no more", stop=stop)]
    outcome = run(trial(provider, server.url(provider)).attempt())
    assert isinstance(outcome, Failed) and outcome.error.code == code


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_model_that_is_not_reached(
    server: Provider, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads nowhere, a closed door, no TLS and no answer in time are tried again."""
    look_up = socket.getaddrinfo

    def fail(host: Any, *rest: Any, **options: Any) -> Any:
        if host in ("models.invalid", b"models.invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    server.replies = [Stall()]
    secure = server.url(provider).replace("http:", "https:")
    cases = [
        (trial(provider, "http://models.invalid/v1"), "dns"),
        (trial(provider, "http://127.0.0.1:9/v1"), "refused"),
        (trial(provider, secure), "tls"),
        (trial(provider, server.url(provider), timeout_seconds=0.3), "timeout"),
    ]
    for made, code in cases:
        outcome = run(made.attempt())
        assert isinstance(outcome, Retry) and outcome.error.code == code
        assert KEY not in shown(made, outcome)
