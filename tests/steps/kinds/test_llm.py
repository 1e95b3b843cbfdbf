"""The `llm` step: done means answered and checked; everything else says what it is."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.config.models import ModelSettings
from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.models.registry import ModelRegistry, model_of
from agent.steps.attempt.services import Limits
from agent.steps.types.call_records import Intent
from agent.steps.types.outcome import Failed, Outcome, Paused, Retry, Succeeded
from tests.support.attempt import Trial, run
from tests.support.model_servers import KEY, Provider, Say, Stall, error, providing

PRICED = {"usd_per_million_in": 2.0, "usd_per_million_out": 10.0}
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the models' key by reference, and nothing between the SDK and loopback."""
    monkeypatch.setenv("KEY_OF_TESTS", KEY)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Provider]:
    """Return a stand-in for a provider."""
    with providing() as provider:
        yield provider


def trial(server: Provider | None, config: dict[str, Any], **options: Any) -> Trial:
    """Return a trial of an `llm` step with two models, one of each provider, and echo."""
    settings = options.pop("model", {})
    made = Trial("llm", config, **options)
    models = {}
    for provider in ("anthropic", "openai") if server is not None else ():
        given = {"provider": provider, "base_url": server.url(provider) if server else ""}
        known = {"key": "env:KEY_OF_TESTS", **PRICED, **given, **settings}
        models[provider] = model_of(provider, ModelSettings(**known))
    made.services.models = ModelRegistry(models, default="echo")
    return made


async def attempt(made: Trial) -> Outcome:
    """Run one attempt, and close what it opened."""
    outcome = await made.attempt()
    await made.services.aclose()
    return outcome


def failed(outcome: Outcome) -> tuple[str, str]:
    """Return the code and the message of a failure."""
    assert isinstance(outcome, Failed), outcome
    return outcome.error.code, outcome.error.message


def test_a_call_takes_as_long_as_its_answer(
    server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timeout is set aside; how long its intent waited for the database does not count."""
    made = trial(server, {"prompt": "hello", "model": "openai"}, options={"timeout_seconds": 90.0})
    monotonic, waited = made.clock.monotonic, 0.0

    def wait_for_the_database(intent: Intent) -> None:
        nonlocal waited
        waited = 30.0

    made.journal.on_intend = wait_for_the_database
    monkeypatch.setattr(made.clock, "monotonic", lambda: monotonic() + waited)
    assert run(attempt(made)) == Succeeded("hello")
    ((_, intent),) = made.journal.intents
    assert intent.reservation is not None and intent.reservation.ms == 90_000
    (result,) = made.journal.results
    assert result.latency_ms is not None and result.latency_ms < 30_000


@pytest.mark.parametrize("model", ["anthropic", "openai"])
def test_an_answer_is_the_output(server: Provider, model: str) -> None:
    """The text is the step's output; the call records model, prompt, tokens, cost and request."""
    made = trial(server, {"prompt": "hello", "model": model, "system": "be brief"})
    assert run(attempt(made)) == Succeeded("hello")
    ((_, intent),) = made.journal.intents
    asked = intent.reservation
    assert asked is not None
    assert asked.model == model and len(asked.prompt_hash) == 64
    assert asked.tokens > 4096 and asked.microusd is not None and asked.microusd >= 40_960
    (result,) = made.journal.results
    spend = result.spend
    assert spend is not None
    assert (spend.tokens_in, spend.tokens_out, spend.microusd) == (10, 5, 70)
    assert (spend.request_id, spend.stop_reason) == (f"req_{model}", "end")
    assert KEY not in repr(made.journal.intents) + repr(made.journal.results)


def test_a_recorded_answer_is_not_asked_for_again(server: Provider) -> None:
    """After a crash behind the answer the next attempt works with what is on record."""
    made = trial(server, {"prompt": "hello", "model": "openai"})
    run(attempt(made))
    made.crash()
    assert run(attempt(made)) == Succeeded("hello")
    assert len(server.requests) == 1


def test_an_unknown_call_is_made_again(server: Provider) -> None:
    """A model's call is repeatable: what was lost on the way is asked again, and counts twice."""
    made = trial(server, {"prompt": "hello", "model": "openai"})
    run(attempt(made))
    made.journal.results.clear()
    made.crash()
    assert run(attempt(made)) == Succeeded("hello")
    assert len(server.requests) == 2
    assert made.journal.statuses == [CallStatus.UNKNOWN, CallStatus.SUCCEEDED]


def test_overload_is_retried_when_the_provider_says(server: Provider) -> None:
    """A 429 costs nothing and comes again after its Retry-After."""
    server.replies = [error(429, "slow down", {"Retry-After": "9"}), Say("at last")]
    made = trial(server, {"prompt": "hello", "model": "anthropic"})
    outcome = run(attempt(made))
    assert isinstance(outcome, Retry) and outcome.delay_seconds == 9
    spend = made.journal.results[0].spend
    assert spend is not None and spend.tokens_in + spend.tokens_out == 0
    assert run(attempt(made)) == Succeeded("at last")


def test_a_bad_key_fails_at_once_without_showing_it(server: Provider) -> None:
    """The message says what to do; the key is nowhere in it, even where the provider shows it."""
    server.replies = [error(401, f"invalid key {KEY}")]
    made = trial(server, {"prompt": "hello", "model": "openai"})
    code, message = failed(run(attempt(made)))
    assert code == "status_401" and "check `key`" in message
    assert KEY not in message + repr(made.journal.results)


def test_a_refusal_for_good_is_applied_after_a_crash(server: Provider) -> None:
    """A lost attempt had the answer on record: the model is not asked again in vain."""
    server.replies = [error(401)]
    made = trial(server, {"prompt": "hello", "model": "openai"})
    first = failed(run(attempt(made)))
    made.crash()
    assert failed(run(attempt(made))) == first
    assert len(server.requests) == 1


def test_a_prompt_that_changes_with_the_attempt_is_asked_again(server: Provider) -> None:
    """An answer to another prompt is not used, and asking a model again has no effect."""
    server.replies = [Say("no number"), Say('{"n": 2}')]
    config = {"prompt": "attempt {{ task.attempt }}", "model": "openai"}
    made = trial(server, config, options={"output_schema": SCHEMA})
    assert isinstance(run(attempt(made)), Retry)
    assert run(attempt(made)) == Succeeded({"n": 2})
    assert [intent.number for _, intent in made.journal.intents] == [1, 1]


def test_a_repair_of_another_prompts_answer_is_not_used(server: Provider) -> None:
    """With the prompt the whole conversation is another one: the recorded repair is of the first."""
    server.replies = [Say("no"), Say("still no"), error(503), Say("nor now"), Say('{"n": 2}')]
    prompt = "attempt {{ task.attempt }}"
    config = {"prompt": prompt, "model": "openai", "on_invalid": "repair", "max_repairs": 9}
    made = trial(server, config, options={"output_schema": SCHEMA})
    assert isinstance(run(attempt(made)), Retry)
    assert run(attempt(made)) == Succeeded({"n": 2})
    assert [intent.number for _, intent in made.journal.intents] == [1, 2, 3, 1, 2]


def test_a_key_that_is_not_there(server: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing variable is named, and nothing is sent."""
    monkeypatch.delenv("KEY_OF_TESTS")
    made = trial(server, {"prompt": "hello", "model": "openai"})
    code, message = failed(run(attempt(made)))
    assert code == "secret_missing" and message.startswith("the key of model openai: ")
    assert "KEY_OF_TESTS" in message
    assert server.requests == []


def test_a_timeout_leaves_what_was_set_aside(server: Provider) -> None:
    """What a model used that did not answer in time is unknown: its reservation stays."""
    server.replies = [Stall()]
    made = trial(server, {"prompt": "x", "model": "openai"}, model={"timeout_seconds": 0.3})
    outcome = run(attempt(made))
    assert isinstance(outcome, Retry) and outcome.error.code == "timeout"
    (result,) = made.journal.results
    assert result.status == CallStatus.FAILED and result.spend is None


@pytest.mark.parametrize(
    ("say", "code"),
    [
        (Say("I would rather not", stop="refusal"), "refusal"),
        (Say("half an ans", stop="max_tokens"), "max_tokens"),
        (Say("", stop="model_context_window_exceeded"), "context_exceeded"),
    ],
)
def test_answers_that_are_no_answers(server: Provider, say: Say, code: str) -> None:
    """Declined, cut and out of context fail under their own codes, are recorded and paid."""
    server.replies = [say]
    made = trial(server, {"prompt": "hello", "model": "anthropic", "json": True})
    assert failed(run(attempt(made)))[0] == code
    assert made.journal.results[0].spend is not None
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 5}',
        ' \n{"n": 5}\n',
        '```json\n{"n": 5}\n```',
        'Here it is:\n```\n{"n": 5}\n```\nAnything else?',
        '\ufeff{"n": 5}',
    ],
)
def test_json_is_read_with_and_without_fences(server: Provider, text: str) -> None:
    """The value itself is the output, however the model wrapped it."""
    server.replies = [Say(text)]
    made = trial(server, {"prompt": "x", "model": "openai"}, options={"output_schema": SCHEMA})
    assert run(attempt(made)) == Succeeded({"n": 5})
    assert '"required"' in server.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty_answer"),
        (" \n ", "empty_answer"),
        ("n is five", "invalid_json"),
        ('{"n": NaN}', "invalid_json"),
        ('{"n": Infinity}', "invalid_json"),
        ('{"n": 5, "s": "\\ud800"}', "invalid_json"),
        ('{"n": 5, "s": "\\u0000"}', "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ('{"n": ' + "[" * 300 + "]" * 300 + "}", "invalid_json"),
        ('{"n": ' + "9" * 5000 + "}", "invalid_json"),
        ('{"n": "five"}', "output_schema"),
        ("{}", "output_schema"),
        ("[1]", "output_schema"),
        ('{"n": 5', "invalid_json"),
        ("```json\n{}\n```\n```json\n{}\n```", "invalid_json"),
        ('"' + "x" * 10_000_000 + '"', "answer_too_long"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_answers_that_cannot_be_used(server: Provider, text: str, code: str) -> None:
    """Each fails with its own error, and neither the engine nor its record is damaged."""
    server.replies = [Say(text)]
    config = {"prompt": "x", "model": "openai", "on_invalid": "fail"}
    made = trial(server, config, options={"output_schema": SCHEMA})
    assert failed(run(attempt(made)))[0] == code
    assert len(json.dumps(made.journal.results[0].response)) < 1_000_000


def test_text_has_its_limits_too(server: Provider) -> None:
    """A text is checked by a schema for texts, for its length, and for being there at all."""
    said = [Say("yes"), Say("perhaps"), Say(""), Say("x" * 5000)]
    codes: list[str] = []
    for say in said:
        server.replies = [say]
        schema = {"type": "string", "enum": ["yes", "no"]} if len(say.text) < 10 else None
        options = {"output_schema": schema} if schema else {}
        config = {"prompt": "x", "model": "openai", "on_invalid": "fail"}
        made = trial(server, config, options=options, limits=Limits(output_bytes=4096))
        outcome = run(attempt(made))
        codes.append(outcome.error.code if isinstance(outcome, Failed) else "fine")
    assert codes == ["fine", "output_schema", "empty_answer", "answer_too_long"]


def test_an_invalid_answer_is_asked_for_again(server: Provider) -> None:
    """`retry` ends the attempt: the next one asks again instead of reading the record."""
    server.replies = [Say("what?"), Say("no idea"), Say('{"n": 5}')]
    made = trial(server, {"prompt": "x", "model": "openai"}, options={"output_schema": SCHEMA})
    assert isinstance(run(attempt(made)), Retry)
    assert isinstance(run(attempt(made)), Retry)
    assert run(attempt(made)) == Succeeded({"n": 5})
    assert len(server.requests) == 3


def test_repair_shows_the_model_what_is_wrong(server: Provider) -> None:
    """The model sees its own answer and every problem with it, in the same attempt."""
    server.replies = [Say('{"n": "five"}'), Say('{"m": 5}'), Say('{"n": 5}')]
    config = {"prompt": "how many?", "model": "anthropic", "on_invalid": "repair"}
    made = trial(server, config, options={"output_schema": SCHEMA})
    assert run(attempt(made)) == Succeeded({"n": 5})
    asked, shown, problem = server.requests[2]["messages"]
    assert (asked["content"], shown["content"]) == ("how many?", '{"m": 5}')
    assert '"n" is a required property' in problem["content"]
    assert [intent.action for _, intent in made.journal.intents] == [
        "model#1",
        "model#2",
        "model#3",
    ]


def test_repairs_come_to_an_end(server: Provider) -> None:
    """After `max_repairs` the step fails with what was wrong last."""
    server.replies = [Say("no")]
    config = {"prompt": "x", "model": "openai", "on_invalid": "repair", "max_repairs": 2}
    made = trial(server, config, options={"output_schema": SCHEMA})
    code, message = failed(run(attempt(made)))
    assert code == "invalid_json" and "after 2 repairs" in message
    assert len(server.requests) == 3


def test_a_repair_goes_on_after_a_crash(server: Provider) -> None:
    """The answers on record are not asked for again, and the repair asks what it asked before."""
    server.replies = [Say("no"), error(500), Say('{"n": 5}')]
    config = {"prompt": "x", "model": "openai", "on_invalid": "repair"}
    made = trial(server, config, options={"output_schema": SCHEMA})
    assert isinstance(run(attempt(made)), Retry)
    assert run(attempt(made)) == Succeeded({"n": 5})
    assert len(server.requests) == 3
    assert server.requests[1] == server.requests[2]


def test_models_that_are_not_there() -> None:
    """An unknown name, and no name at all, fail with the list of models."""
    code, message = failed(run(attempt(trial(None, {"prompt": "x", "model": "nope"}))))
    assert code == "no_such_model" and "[models.nope]" in message and "echo" in message
    made = trial(None, {"prompt": "x"})
    made.services.models.default = ""
    assert "no model is named" in failed(run(attempt(made)))[1]


def test_limits_of_a_model(server: Provider) -> None:
    """More than a model gives is refused; its default is cut to what it gives; so is its context."""
    made = trial(
        server,
        {"prompt": "x", "model": "openai", "max_tokens": 300},
        model={"max_output_tokens": 200},
    )
    assert "at most 200" in failed(run(attempt(made)))[1]
    made = trial(server, {"prompt": "x", "model": "openai"}, model={"max_output_tokens": 200})
    run(attempt(made))
    assert server.requests[0]["max_tokens"] == 200
    made = trial(server, {"prompt": "x" * 10_000, "model": "openai"}, model={"context_tokens": 100})
    assert failed(run(attempt(made)))[0] == "context_exceeded"
    assert len(server.requests) == 1


def test_echo_needs_nothing() -> None:
    """Echo repeats the prompt, marked as an echo, or gives an example value of a schema."""
    assert run(attempt(trial(None, {"prompt": "hello"}))) == Succeeded("[echo] hello")
    schema = {
        "type": "object",
        "required": ["who", "n", "tags", "kind"],
        "properties": {
            "who": {"type": "string"},
            "n": {"type": "integer", "minimum": 3},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "kind": {"enum": ["a", "b"]},
        },
    }
    made = trial(None, {"prompt": "hello"}, options={"output_schema": schema})
    assert run(attempt(made)) == Succeeded(
        {"who": "[echo]", "n": 3, "tags": ["[echo]"], "kind": "a"}
    )


def test_echo_follows_a_script() -> None:
    """A block in the prompt says what is answered, one entry for each answer so far."""
    prompt = 'Say it.\n```echo\n["not json", {"text": "{\\"n\\": 1}", "tokens_out": 7}]\n```'
    config = {"prompt": prompt, "on_invalid": "repair"}
    made = trial(None, config, options={"output_schema": SCHEMA})
    assert run(attempt(made)) == Succeeded({"n": 1})
    spend = made.journal.results[-1].spend
    assert spend is not None and (spend.tokens_out, spend.microusd) == (7, 0)


@pytest.mark.parametrize(
    "script", ["{", "[]", '[{"tool_uses": [{}]}]', '[{"tool_uses": 5}]', '[{"tokens_out": "x"}]']
)
def test_an_echo_script_that_is_none(script: str) -> None:
    """It fails at once and says so: another attempt would read the same."""
    made = trial(None, {"prompt": f"```echo\n{script}\n```"})
    assert failed(run(attempt(made)))[0] == "bad_script"


def test_a_budget_that_is_used_up_ends_the_attempt(server: Provider) -> None:
    """A refused reservation pauses or fails the step, as the budget says, and sends nothing."""
    from agent.steps.types.attempt_input import BudgetRefusedError

    for must_fail in (False, True):
        made = trial(server, {"prompt": "x", "model": "openai"})

        def refuse(_: Any, must_fail: bool = must_fail) -> None:
            raise BudgetRefusedError("budget_exhausted", "nothing is left", must_fail=must_fail)

        made.journal.on_intend = refuse
        outcome = run(attempt(made))
        if must_fail:
            assert failed(outcome) == ("budget_exhausted", "nothing is left")
        else:
            assert isinstance(outcome, Paused)
    assert server.requests == []


def test_a_step_whose_time_is_over(server: Provider) -> None:
    """The time of its budget pauses the task, or ends the step and not only the attempt."""
    config = {"prompt": "x", "model": "openai"}
    made = trial(server, config, claim={"deadline": 1})
    outcome = run(attempt(made))
    assert isinstance(outcome, Paused) and outcome.exhausted is not None
    assert "the time of step 'it' is over" in outcome.exhausted
    options = {"budget": {"time_seconds": 1.0, "on_exhausted": "fail"}}
    made = trial(server, config, claim={"deadline": 1}, options=options)
    assert failed(run(attempt(made))) == ("budget_exhausted", "the step's time was over")
    assert server.requests == []


def test_time_that_is_over_between_two_calls(server: Provider) -> None:
    """An answer that is under way may finish and is on record; nothing more is asked for."""
    server.replies = [Say("no JSON"), Say("{}")]
    config = {"prompt": "x", "model": "openai", "json": True, "on_invalid": "repair"}
    made = trial(server, config)
    made.claim["deadline"] = made.clock.now() + 60 * SECOND
    made.journal.on_intend = lambda _: made.clock.advance(61)
    outcome = run(attempt(made))
    assert isinstance(outcome, Paused) and outcome.exhausted is not None
    assert len(server.requests) == 1
    made.claim["deadline"] = made.clock.now() + 3600 * SECOND
    assert run(attempt(made)) == Succeeded({})
    assert len(server.requests) == 2
