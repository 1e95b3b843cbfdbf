"""Both SDKs against a server that speaks their protocols: what is sent, and what each failure means."""

import asyncio
import json
import socket
from typing import Any

import pytest

from agent.config.models import ModelSettings
from agent.models import response_parsing
from agent.models.errors import ModelError
from agent.models.protocol import Message, ModelRequest, Reply, Tool, ToolUse
from agent.models.registry import connect, model_of
from tests.support.model_servers import KEY, HangUp, Raw, Say, Stall, error, providing
from tests.support.untrusted_server import untrusted_server

PATIENCE_SECONDS = 60
PROVIDERS = ["anthropic", "openai"]
HELLO = ModelRequest(messages=(Message("user", "hello"),), max_tokens=50)

both = pytest.mark.parametrize("provider", PROVIDERS)


def ask(
    provider: str,
    url: str,
    request: ModelRequest = HELLO,
    seconds: float = PATIENCE_SECONDS,
    **settings: Any,
) -> Reply:
    """Ask a model once, and close the connector."""
    given = {"provider": provider, "base_url": url, "model": "some-model", **settings}
    model = model_of("it", ModelSettings(**given))

    async def main() -> Reply:
        connector = connect(model, KEY)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await connector.complete(request, seconds)
        finally:
            await connector.aclose()

    return asyncio.run(main())


def failed(provider: str, *replies: Any, seconds: float = PATIENCE_SECONDS) -> ModelError:
    """Ask a server that answers badly, and return what that was taken for."""
    with providing(*replies) as server, pytest.raises(ModelError) as caught:
        ask(provider, server.url(provider), seconds=seconds)
    assert len(server.requests) == 1, "the SDK tried again by itself"
    return caught.value


def raw(provider: str, tokens: Any) -> Raw:
    """Return a good answer with counts of tokens as they are given."""
    if provider == "anthropic":
        document: dict[str, Any] = {
            "content": [{"type": "text", "text": "hello"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": tokens, "output_tokens": tokens},
        }
    else:
        document = {
            "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": tokens},
        }
    return Raw(200, json.dumps(document).encode())


@both
def test_an_answer(provider: str) -> None:
    """Text, tokens, request id and the reason for stopping come back; the key goes as a bearer."""
    with providing(Say("good day", tokens_in=7, tokens_out=3)) as server:
        reply = ask(provider, server.url(provider))
    assert (reply.text, reply.stop_reason) == ("good day", "end")
    assert (reply.tokens_in, reply.tokens_out) == (7, 3)
    assert reply.request_id == f"req_{provider}"
    assert server.keys == [f"Bearer {KEY}"]
    (sent,) = server.requests
    assert sent["model"] == "some-model"
    assert sent["messages"] == [{"role": "user", "content": "hello"}]
    assert sent["max_tokens"] == 50


def test_the_request_to_anthropic() -> None:
    """System, effort, stop texts, tools and a schema have their own fields."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    request = ModelRequest(
        messages=(Message("user", "hello"),),
        max_tokens=64_000,
        system="be brief",
        effort="low",
        stop=("END",),
        wants_json=True,
        schema=schema,
        tools=(Tool("look", "looks", {"type": "object", "properties": {}}),),
    )
    with providing() as server:
        ask("anthropic", server.anthropic_url, request)
    (sent,) = server.requests
    assert sent["system"] == "be brief"
    assert sent["stop_sequences"] == ["END"]
    assert sent["output_config"]["effort"] == "low"
    shaped = sent["output_config"]["format"]["schema"]
    assert shaped["additionalProperties"] is False
    assert shaped["properties"] == {"n": {"type": "integer"}}
    assert sent["tools"][0]["input_schema"] == {"type": "object", "properties": {}}
    assert "temperature" not in sent


@pytest.mark.parametrize(
    ("setting", "advice"),
    [({"temperature": 0.5}, "`effort` instead"), ({"effort": "minimal"}, "no effort below low")],
)
def test_settings_unknown_to_anthropic_are_refused(setting: dict[str, Any], advice: str) -> None:
    """Nothing is sent."""
    request = ModelRequest(HELLO.messages, 50, **setting)
    with providing() as server, pytest.raises(ModelError, match=advice) as caught:
        ask("anthropic", server.anthropic_url, request)
    assert not caught.value.may_retry
    assert server.requests == []


def test_the_request_to_openai() -> None:
    """System, temperature, effort, stop texts and a schema have their own fields."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    request = ModelRequest(
        messages=(Message("user", "hello"),),
        max_tokens=50,
        system="be brief",
        effort="high",
        temperature=0.5,
        stop=("END",),
        wants_json=True,
        schema=schema,
    )
    with providing() as server:
        ask("openai", server.openai_url, request)
        ask("openai", server.openai_url, request, structured_output=False)
    sent, plain = server.requests
    assert sent["messages"][0] == {"role": "system", "content": "be brief"}
    assert (sent["temperature"], sent["reasoning_effort"], sent["stop"]) == (0.5, "high", ["END"])
    assert sent["response_format"]["json_schema"]["schema"]["required"] == ["n"]
    assert "response_format" not in plain


@both
def test_tools_and_their_answers(provider: str) -> None:
    """A tool use comes back whole, and the conversation with its answer is sent as the API wants."""
    with providing(Say("", tools=[("use_1", "look", {"at": "it"})]), Say("seen")) as server:
        tools = (Tool("look", "looks", {"type": "object", "properties": {}}),)
        first = ask(provider, server.url(provider), ModelRequest(HELLO.messages, 50, tools=tools))
        assert first.stop_reason == "tool_use"
        assert first.tool_uses == (ToolUse("use_1", "look", {"at": "it"}),)
        conversation = (
            *HELLO.messages,
            Message("assistant", first.text, first.tool_uses, native=first.native),
            Message("tool", "a cat", tool_use_id="use_1", is_error=True),
        )
        ask(provider, server.url(provider), ModelRequest(conversation, 50, tools=tools))
    _, said, answered = server.requests[1]["messages"]
    if provider == "anthropic":
        assert said["content"][0]["input"] == {"at": "it"}
        assert answered["content"][0] == {
            "type": "tool_result",
            "tool_use_id": "use_1",
            "content": "a cat",
            "is_error": True,
        }
    else:
        assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"at": "it"}
        assert answered == {"role": "tool", "tool_call_id": "use_1", "content": "a cat"}


def test_arguments_that_are_no_object() -> None:
    """What a model wrote as arguments and is no JSON object is handed on as the text that it is."""
    with providing(Say("", tools=[("use_1", "look", "{broken")])) as server:
        reply = ask("openai", server.openai_url)
    assert reply.tool_uses[0].arguments == "{broken"


@pytest.mark.parametrize(
    ("provider", "word", "reason"),
    [
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "max_tokens", "max_tokens"),
        ("anthropic", "refusal", "refusal"),
        ("anthropic", "model_context_window_exceeded", "context_exceeded"),
        ("openai", "length", "max_tokens"),
        ("openai", "content_filter", "refusal"),
    ],
)
def test_reasons_for_stopping(provider: str, word: str, reason: str) -> None:
    """Each provider's words are ours."""
    with providing(Say(stop=word)) as server:
        assert ask(provider, server.url(provider)).stop_reason == reason


@both
def test_missing_usage_stays_unknown(provider: str) -> None:
    """A server that counts no tokens gives none, and none are made up."""
    with providing(Say(tokens_in=None)) as server:
        reply = ask(provider, server.url(provider))
    assert (reply.tokens_in, reply.tokens_out) == (None, None)


@both
@pytest.mark.parametrize("count", [-5, True, 10**30, 1.5, "9"])
def test_usage_that_cannot_be(provider: str, count: Any) -> None:
    """An invalid count is dropped: it would credit the budget with what other calls have used."""
    with providing(raw(provider, tokens=count)) as server:
        reply = ask(provider, server.url(provider))
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("hello", None, None)


@both
def test_tool_uses_without_ids_of_their_own(provider: str) -> None:
    """Missing and repeated ids are made up, so that each use can be answered by its own."""
    wished: list[Any] = [(None, "look", {}), ("same", "look", {}), ("same", "look", {})]
    with providing(Say("", tools=wished), Say("seen")) as server:
        first = ask(provider, server.url(provider))
        ids = [use.id for use in first.tool_uses]
        assert len(set(ids)) == 3 and all(ids)
        answers = [Message("tool", "a cat", tool_use_id=use_id) for use_id in ids]
        said = Message("assistant", first.text, first.tool_uses, native=first.native)
        ask(provider, server.url(provider), ModelRequest((*HELLO.messages, said, *answers), 50))
    _, told, *answered = server.requests[1]["messages"]
    if provider == "anthropic":
        assert [use["id"] for use in told["content"]] == ids
        assert [result["tool_use_id"] for result in answered[0]["content"]] == ids
    else:
        assert [use["id"] for use in told["tool_calls"]] == ids
        assert [message["tool_call_id"] for message in answered] == ids


@both
def test_a_tools_name_that_no_provider_takes_back(provider: str) -> None:
    """A tool name that a model has invented is kept, and sent back in a form that providers accept."""
    name = "functions.look at\0" + "x" * 100
    with providing(Say("", tools=[("use_1", name, {})]), Say("seen")) as server:
        first = ask(provider, server.url(provider))
        assert first.tool_uses[0].name == name.replace("\0", "\ufffd")
        said = Message("assistant", first.text, first.tool_uses, native=first.native)
        ask(provider, server.url(provider), ModelRequest((*HELLO.messages, said), 50))
    told = server.requests[1]["messages"][1]
    sent = (
        told["content"][0]["name"]
        if provider == "anthropic"
        else told["tool_calls"][0]["function"]["name"]
    )
    assert sent == ("functions_look_at_" + "x" * 100)[:64]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("", {}),
        (None, {}),
        ({"at": "it"}, {"at": "it"}),
        ('{"at": "\\ud800\\u0000"}', '{"at": "\\ud800\\u0000"}'),
        ('{"at": "\\ud83d\\ude00"}', {"at": "\U0001f600"}),
        ("[1]", "[1]"),
        ([1], "[1]"),
        ('{"at": NaN}', '{"at": NaN}'),
        ('{"at": 1e999}', '{"at": 1e999}'),
        ('{"at": ' + "[" * 900 + "]" * 900 + "}", '{"at": ' + "[" * 900 + "]" * 900 + "}"),
    ],
)
def test_arguments_of_all_sorts(given: Any, taken: Any) -> None:
    """None at all are no arguments; an object that can be stored is one; the rest is text."""
    use = {"id": "use_1", "function": {"name": "look", "arguments": given}}
    message = {"content": None, "tool_calls": [use]}
    choice = {"message": message, "finish_reason": "tool_calls"}
    with providing(Raw(200, json.dumps({"choices": [choice]}).encode())) as server:
        reply = ask("openai", server.openai_url)
    assert reply.tool_uses[0].arguments == taken


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_arguments_that_cannot_be_stored_stay_text(provider: str) -> None:
    """Replacing a NUL would use the tool with what the model did not ask for."""
    tools = [("use_1", "look", {"at": "a\0b"}), ("use_2", "look", {"at": "it"})]
    with providing(Say("", tools=tools)) as server:
        url = server.openai_url if provider == "openai" else server.anthropic_url
        reply = ask(provider, url)
    assert [use.arguments for use in reply.tool_uses] == ['{"at": "a\\u0000b"}', {"at": "it"}]


@pytest.mark.parametrize(
    ("word", "reason"), [("length", "max_tokens"), ("content_filter", "refusal")]
)
def test_an_answer_that_was_cut_is_not_acted_upon(word: str, reason: str) -> None:
    """Tool uses of a cut or declined answer may be half of what was meant: the reason stands."""
    with providing(Say("", stop=word, tools=[("use_1", "look", {})])) as server:
        assert ask("openai", server.openai_url).stop_reason == reason
    with providing(Say("", stop="stop", tools=[("use_1", "look", {})])) as server:
        assert ask("openai", server.openai_url).stop_reason == "tool_use"


def test_text_in_parts() -> None:
    """Some servers give a message as parts, thoughts among them: its text is that of the texts."""
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "good day"}]
    choice = {"message": {"content": parts}, "finish_reason": "stop"}
    with providing(Raw(200, json.dumps({"choices": [choice]}).encode())) as server:
        assert ask("openai", server.openai_url).text == "good day"


@both
def test_an_answer_without_end(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response beyond the limit is not read to its end."""
    monkeypatch.setattr(response_parsing, "MAX_BYTES", 1000)
    problem = failed(provider, Say("x" * 2000))
    assert (problem.code, problem.may_retry) == ("malformed_answer", True)
    assert "larger than 1000 bytes" in problem.message


@both
def test_an_error_in_a_good_answer(provider: str) -> None:
    """An error under status 200 is reported in the provider's words, with the id of the request."""
    body = json.dumps({"error": {"message": "no model is free", "code": 502}}).encode()
    name = "request-id" if provider == "anthropic" else "x-request-id"
    problem = failed(provider, Raw(200, body, {name: "req_7"}))
    assert "no model is free" in problem.message
    assert problem.request_id == "req_7"


@both
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_overload_and_outages_are_retried(provider: str, status: int) -> None:
    """The retry waits for the time that the provider asks for."""
    problem = failed(provider, error(status, "busy", {"Retry-After": "7"}))
    assert problem.may_retry
    assert problem.delay_seconds == 7
    assert problem.code == ("rate_limited" if status == 429 else f"status_{status}")
    assert problem.may_have_cost == (status in (408, 502, 504))
    assert "busy" in problem.message


@both
@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "check the step's keys"),
        (401, "check `key` of the model"),
        (403, "permissions"),
        (404, "check `model` and `base_url`"),
        (413, "shorten the prompt"),
    ],
)
def test_permanent_errors_are_not_retried(provider: str, status: int, advice: str) -> None:
    """The error has the provider's message and what a person can do."""
    problem = failed(provider, error(status, "it said so"))
    assert not problem.may_retry
    assert not problem.may_have_cost
    assert problem.code == f"status_{status}"
    assert "it said so" in problem.message
    assert advice in problem.message


@both
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(provider: str, status: int) -> None:
    """Another server would get the prompt, and of one SDK also the key."""
    with providing(Say("from elsewhere")) as other:
        moved = Raw(status, b"", {"Location": f"{other.anthropic_url}/v1/messages"})
        problem = failed(provider, moved)
        assert other.requests == []
    assert not problem.may_retry and not problem.may_have_cost
    assert problem.code == f"status_{status}" and "`base_url`" in problem.message


@pytest.mark.parametrize(
    ("provider", "said"),
    [
        ("anthropic", "prompt is too long: 210000 tokens > 200000 maximum"),
        ("openai", "This model's maximum context length is 8192 tokens"),
    ],
)
def test_a_prompt_beyond_the_context(provider: str, said: str) -> None:
    """It has a code of its own, whatever the words."""
    problem = failed(provider, error(400, said))
    assert (problem.code, problem.kind, problem.may_retry) == ("context_exceeded", "limit", False)


@both
@pytest.mark.parametrize(
    "reply",
    [
        Raw(200, b'{"content": '),
        Raw(200, b"<html>a proxy's page</html>", {"Content-Type": "text/html"}),
        Raw(200, b"[]"),
        Raw(200, b'{"content": null, "choices": []}'),
        Raw(200, b'{"choices": [{"message": 5}], "content": [{}]}'),
        Raw(200, b"\xff\xfe not text"),
        Raw(200, b""),
        Say(stop="something_new"),
        Say(stop=["of", "another", "type"]),  # type: ignore[arg-type]
        Raw(200, b'{"content": [], "choices": [], "stop_reason": "end_turn", "n": NaN}'),
        Raw(200, b'{"id": "cut off', promised=5000),
        Raw(200, b"not packed", {"Content-Encoding": "gzip"}),
        HangUp(),
    ],
    ids=[
        *["cut", "html", "list", "nothing", "unlike", "bytes", "empty", "stop", "odd stop", "nan"],
        *["short", "packed", "hang-up"],
    ],
)
def test_answers_that_are_none(provider: str, reply: Any) -> None:
    """What cannot be read may be tried again, and may have been charged."""
    problem = failed(provider, reply)
    assert problem.may_retry
    assert problem.may_have_cost
    assert problem.code in ("malformed_answer", "transport")


@both
def test_no_answer_in_time(provider: str) -> None:
    """A timeout has a code of its own; the model may still be working."""
    problem = failed(provider, Stall(), seconds=0.3)
    assert (problem.code, problem.kind, problem.may_retry) == ("timeout", "timeout", True)
    assert problem.may_have_cost


@both
def test_a_refused_connection_is_retried(provider: str) -> None:
    """It costs nothing."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: no other process can answer there
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        with pytest.raises(ModelError) as caught:
            ask(provider, url)
    assert (caught.value.code, caught.value.kind) == ("refused", "transport")
    assert caught.value.may_retry
    assert not caught.value.may_have_cost


@both
def test_no_secure_connection(provider: str) -> None:
    """A server without TLS has an error of its own."""
    with providing() as server, pytest.raises(ModelError) as caught:
        ask(provider, server.url(provider).replace("http:", "https:"))
    assert (caught.value.code, caught.value.may_retry) == ("tls", True)
    assert not caught.value.may_have_cost


@both
def test_an_untrusted_certificate_is_looked_at_once(provider: str) -> None:
    """Neither the SDK nor the step tries again: the certificate would be the same."""
    with untrusted_server() as server, pytest.raises(ModelError) as caught:
        ask(provider, f"{server.url}/v1")
    assert (caught.value.code, caught.value.may_retry) == ("tls", False)
    assert server.connections == 1


@both
def test_a_name_that_cannot_be_resolved(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing name lookup has an error of its own."""

    def fail(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ModelError) as caught:
        ask(provider, "http://models.invalid/v1")
    assert (caught.value.code, caught.value.may_retry) == ("dns", True)
    assert not caught.value.may_have_cost


@both
def test_text_that_no_database_keeps(provider: str) -> None:
    """NUL and lone surrogates in an answer are replaced."""
    with providing(Say("a\0b\ud800c")) as server:
        assert ask(provider, server.url(provider)).text in ("a\ufffdb?c", "a\ufffdb\ufffdc")
