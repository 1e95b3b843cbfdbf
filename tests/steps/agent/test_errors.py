"""An agent's model that fails: each failure has its own error, before and in the middle of a loop."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.config.models import ModelSettings
from agent.models.registry import ModelRegistry, model_of
from agent.steps.kinds.llm import model_calls
from agent.steps.types.outcome import Failed, Outcome, Retry, Succeeded
from tests.support.attempt import Trial, callable_name, run, until
from tests.support.model_servers import (
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
    made.services.models = ModelRegistry(
        {"it": model_of("it", ModelSettings(**given))}, default="it"
    )
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


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_an_answer_that_drips(
    server: Provider, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then is no answer: the time for one holds however busily it comes."""
    monkeypatch.setattr(model_calls, "_GRACE_SECONDS", 0.5)
    server.replies = [Raw(200, b" " * 5000, drips=True)]
    made = trial(provider, server.url(provider), timeout_seconds=0.5)
    outcome = run(made.attempt())
    assert isinstance(outcome, Retry) and outcome.error.code == "timeout"
    assert made.journal.results[0].spend is None, "what it has cost is unknown"


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_wishes_that_cannot_be_met(server: Provider, provider: str) -> None:
    """Of several uses in one turn each is answered for itself, what is wrong with it in words."""
    wished = [
        ("a", "look", {}),
        ("b", "functions.look", {}),
        ("c", "look", {"at": "it"}),
        ("d", "look", [1] if provider == "anthropic" else "{broken"),
        ("d", "look", {}),
    ]
    server.replies = [Say("", tools=wished), Say("done")]
    made = trial(provider, server.url(provider))
    assert run(made.attempt()) == Succeeded("done")
    seen, unknown, unlike, no_object, again = [
        result.response for result in made.journal.results[1:-1]
    ]
    assert seen == again == {"text": "seen"}
    assert unknown == {"refused": "there is no tool 'functions.look'; there are: look"}
    assert unlike["refused"].startswith("the arguments do not match the tool's schema: arguments: ")
    assert no_object == {"refused": "the arguments are not a JSON object"}


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_wish_beyond_all_bounds(server: Provider, provider: str) -> None:
    """An answer beyond the limit is neither recorded nor used: the model gets the reason, and goes on."""
    server.replies = [Say("", tools=[("a", "look", {"at": "x" * 300_000})]), Say("done")]
    made = trial(provider, server.url(provider))
    made.services.limits = replace(made.services.limits, output_bytes=100_000)
    assert run(made.attempt()) == Succeeded("done")
    assert len(made.journal.results) == 2, "no tool was used"
    assert len(repr(made.journal.results)) < 10_000
    assert "100000 are allowed" in server.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_an_answer_that_says_nothing(server: Provider, provider: str) -> None:
    """It is asked for again, and not sent back as it is: no provider would take it."""
    server.replies = [Say(" \n"), Say("done")]
    assert run(trial(provider, server.url(provider)).attempt()) == Succeeded("done")
    assert server.requests[1]["messages"][-2] == {"role": "assistant", "content": "(nothing)"}


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_an_answer_without_usage_is_on_record(server: Provider, provider: str) -> None:
    """The reservation stays; the provider's id of the request is recorded."""
    server.replies = [Say("done", tokens_in=None)]
    made = trial(provider, server.url(provider))
    assert run(made.attempt()) == Succeeded("done")
    (result,) = made.journal.results
    assert result.spend is None
    assert result.response["request_id"] == f"req_{provider}"
    assert result.response["stop_reason"] == "end"


def test_a_failure_names_its_request(server: Provider) -> None:
    """The provider's own id of a failed request stands in the message."""
    server.replies = [error(400, "no", {"x-request-id": "req_7"})]
    outcome = run(trial("openai", server.openai_url).attempt())
    assert isinstance(outcome, Failed) and outcome.error.message.endswith("(request req_7)")


def test_secrets_are_hidden_wherever_an_attempt_begins(
    server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt whose first calls are answered from the record writes down no secret of its step."""
    monkeypatch.setenv("TOKEN_OF_TESTS", "a-token-of-a-header")

    over = threading.Event()

    def look() -> str:
        if len(told) == 1:
            told.append("lost")
            over.wait(60)
        return f"found {KEY} and a-token-of-a-header"

    told = ["first"]
    server.replies = [LOOK, Say("done")]
    made = trial("openai", server.openai_url)
    headers = {"Authorization": "Bearer env:TOKEN_OF_TESTS"}
    tools = {
        "look": {"python": callable_name(look), "effect": "none"},
        "web": {"http": {"urls": ["http://127.0.0.1:9/"], "headers": headers}},
    }
    made.step = made.step.model_copy(update={"config": {**made.step.config, "tools": tools}})
    made.graph = made.graph.model_copy(update={"steps": [made.step]})

    async def lose() -> None:
        attempt = asyncio.create_task(made.attempt())
        await until(lambda: len(told) > 1)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    run(lose())
    over.set()
    made.crash()
    outcome = run(made.attempt())
    assert outcome == Succeeded("done")
    assert "found [redacted] and [redacted]" in shown(made, outcome)
    assert KEY not in shown(made, outcome) and "a-token-of" not in shown(made, outcome)
