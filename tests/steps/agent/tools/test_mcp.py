"""Tools of MCP servers: real servers, over pipes and over HTTP, that answer, fail, die and hang."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import LATEST_MODERN_VERSION

from agent.config.models import McpSettings
from agent.core.state_machine import ApprovalStatus
from agent.core.waits import UnknownCall
from agent.steps.types.outcome import Failed, Retry, Succeeded, Waiting
from tests.support.agent_loop import answers, approved, failed, trial, uses
from tests.support.attempt import PATIENCE_SECONDS, Trial, run
from tests.support.free_port import free_port
from tests.support.untrusted_server import untrusted_server

SERVER = str(Path(__file__).parents[3] / "support" / "mcp_server.py")
PLAIN = str(Path(__file__).parents[3] / "support" / "plain_mcp_server.py")
TOKEN = "a-token-of-the-tests"


@pytest.fixture
def did(tmp_path: Path) -> Path:
    """Return the file in which servers write down what their tools did."""
    path = tmp_path / "did"
    path.touch()
    return path


def stdio(did: Path, program: str = PLAIN, **env: str) -> McpSettings:
    """Return a server that is a program."""
    args = ["-I", program] if program == PLAIN else [program]
    return McpSettings(command=sys.executable, args=args, env={"DID": str(did), **env})


def asking(script: list[Any], settings: McpSettings, tools: list[str], **tool: Any) -> Trial:
    """Return a trial of an agent that may use tools of a server."""
    made = trial(script, {"it": {"mcp": {"server": "tests", "tools": tools}, **tool}})
    made.services.mcp = {"tests": settings}
    return made


@pytest.fixture
def http(did: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[McpSettings]:
    """Return a server that listens on loopback."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    environment = {**os.environ, "DID": str(did)}
    child = subprocess.Popen([sys.executable, SERVER, "http", str(port)], env=environment)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _listens(port):
            assert time.monotonic() < deadline and child.poll() is None
            time.sleep(0.02)
        monkeypatch.setenv("TOKEN_OF_TESTS", TOKEN)
        headers = {"Authorization": "Bearer env:TOKEN_OF_TESTS"}
        yield McpSettings(url=f"http://127.0.0.1:{port}/mcp", headers=headers)
    finally:
        child.kill()
        child.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_tools_of_a_program(did: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tools are used by their names and schemas; it sees its own environment and no other."""
    monkeypatch.setenv("SECRET_OF_TESTS", TOKEN)
    settings = stdio(did, SERVER, GIVEN="env:SECRET_OF_TESTS")
    wishes: tuple[tuple[str, Any], ...] = (
        ("it_add", {"one": 1, "other": 2}),
        ("it_add", {"one": "x"}),
        ("it_show", {"name": "SECRET_OF_TESTS"}),
        ("it_show", {"name": "GIVEN"}),
        ("it_fail", {}),
        ("it_hang", {}),
    )
    made = asking([uses(*wishes), "done"], settings, ["add", "show", "fail"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    added, refused, foreign, given, broken, hidden = answers(made)[1:]
    assert added == {"text": "3"}
    assert "one" in refused["refused"] and "no tool 'it_hang'" in hidden["refused"]
    assert foreign == {"text": "nothing"}
    assert given == {"text": "[redacted]"}
    assert broken["is_error"] and "fail" in broken["text"]
    assert "tests: the server complains" in made.journal.log_text


def test_tools_over_http(http: McpSettings) -> None:
    """A server at an address is asked with its headers, and nothing shows them."""
    made = asking([uses(("it_add", {"one": 1, "other": 2})), "done"], http, ["add"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[1:] == [{"text": "3"}]
    assert TOKEN not in repr(made.journal.intents) + repr(made.journal.results)


def test_a_description_that_cannot_be_kept(did: Path) -> None:
    """What a server says of its tools is shown and recorded without what no database keeps."""
    made = asking(["done"], stdio(did), ["double"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    (described,) = made.journal.results[0].response["it"]
    assert described["description"] == "odd\ufffd"


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_a_server_that_does_not_say_what_it_has(did: Path, method: str) -> None:
    """Its time ends the attempt before the model is asked, however far it had come."""
    settings = stdio(did, SILENT_ON=method).model_copy(update={"timeout_seconds": 2.0})
    made = asking(["done"], settings, ["double"], effect="none")
    outcome = run(made.attempt())
    assert isinstance(outcome, Retry) and outcome.error.code == "mcp"
    assert "no answer within 2 s" in outcome.error.message


def test_a_changed_server_widens_nothing(did: Path) -> None:
    """A loop goes on with the tools that it was shown; what is on record is not used again."""
    script = [uses(("it_double", {"n": 1})), uses(("it_more", {})), "done"]
    made = asking(script, stdio(did), ["double"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    made.services.mcp = {"tests": stdio(did, MORE="1")}
    made.crash()
    assert run(made.attempt()) == Succeeded("done")
    assert did.read_text() == "double\n"
    assert "no tool 'it_more'" in answers(made)[-1]["refused"]


def test_tools_with_effects_ask_first(did: Path) -> None:
    """A server's own claim about its tools is not trusted: without `effect: none` each use asks."""
    made = asking([uses(("it_double", {"n": 1})), "done"], stdio(did), ["double"])
    approved(made, ApprovalStatus.APPROVED, run(made.attempt()))
    assert did.read_text() == ""
    assert run(made.attempt()) == Succeeded("done")
    assert did.read_text() == "double\n"


def test_a_server_that_dies_in_a_use(did: Path) -> None:
    """An effect is unknown and a person is asked; a tool that only reads has failed."""
    made = asking([uses(("it_die", {"n": 1})), "done"], stdio(did), ["die"], approve="never")
    outcome = run(made.attempt())
    assert isinstance(outcome, Retry) and outcome.is_unknown
    made.pass_expiry()
    outcome = run(made.attempt())
    assert isinstance(outcome, Waiting) and isinstance(outcome.on, UnknownCall)
    assert did.read_text() == "die\n"
    script = [uses(("it_die", {"n": 1})), uses(("it_double", {"n": 1})), "done"]
    made = asking(script, stdio(did), ["die", "double"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    lost, added = answers(made)[1:]
    assert lost["is_error"] and added == {"text": "2"}


def test_a_server_that_hangs_in_a_use(did: Path) -> None:
    """The tool's time ends it, and with it the server; the next use starts another."""
    script = [uses(("it_hang", {"n": 1})), uses(("it_double", {"n": 1})), "done"]
    made = asking(script, stdio(did), ["hang", "double"], effect="none", timeout="1s")
    assert run(made.attempt()) == Succeeded("done")
    hung, added = answers(made)[1:]
    assert "no answer within 1 s" in hung["text"] and added == {"text": "2"}


@pytest.mark.parametrize(
    ("settings", "is_final", "message"),
    [
        (McpSettings(command="no-such-program-anywhere"), True, "no-such-program-anywhere"),
        (McpSettings(command="true"), False, "cannot be reached"),
        (McpSettings(command="sleep", args=["600"], timeout_seconds=0.5), False, "within 0.5 s"),
        (McpSettings(url="http://127.0.0.1:9/mcp"), False, "cannot be reached"),
        (McpSettings(command="cat", env={"A": "env:NOT_SET_ANYWHERE"}), True, "NOT_SET_ANYWHERE"),
    ],
    ids=["missing", "ends", "hangs", "refused", "no-secret"],
)
def test_a_server_that_is_not_there(settings: McpSettings, is_final: bool, message: str) -> None:
    """The attempt ends before the model is asked: with another one, unless that is of no use."""
    outcome = run(asking(["done"], settings, ["double"]).attempt())
    assert isinstance(outcome, Failed if is_final else Retry), outcome
    assert message in outcome.error.message


def test_a_server_with_an_untrusted_certificate() -> None:
    """It ends the step: a second look at the same certificate finds the same."""
    with untrusted_server() as server:
        settings = McpSettings(url=f"{server.url}/mcp")
        outcome = run(asking(["done"], settings, ["double"]).attempt())
    assert isinstance(outcome, Failed), outcome
    assert "certificate" in outcome.error.message


def test_tools_that_are_not_allowed(did: Path) -> None:
    """The configuration bounds what steps may list, and one of them must list something."""
    limited = stdio(did).model_copy(update={"tools": ["double"]})
    outcome = run(asking(["done"], limited, ["double", "die"]).attempt())
    assert isinstance(outcome, Failed) and "does not allow die" in outcome.error.message
    outcome = run(asking(["done"], stdio(did), ["dou"]).attempt())
    assert isinstance(outcome, Failed) and "there are: ask, die, double" in outcome.error.message
    unlisted = {"it": {"mcp": {"server": "tests"}}}
    made = trial(["done"], unlisted)
    made.services.mcp = {"tests": stdio(did)}
    assert failed(run(made.attempt())) == "bad_config"
    made = trial(["done"], unlisted)
    made.services.mcp = {"tests": limited}
    assert run(made.attempt()) == Succeeded("done")
    assert failed(run(trial(["done"], unlisted).attempt())) == "no_such_server"


def special(did: Path, tools: dict[str, Any]) -> McpSettings:
    """Return a server with tools of these descriptions; each gives its arguments back."""
    return stdio(did, SPECIAL=json.dumps(tools))


TEXT_ONLY = {"inputSchema": {"type": "object", "properties": {"t": {"type": "string"}}}}


@pytest.mark.parametrize("written", ["search-all", "search_all"])
@pytest.mark.parametrize("asked", ["it_search_all", "it_search-all"])
def test_a_hyphen_in_a_name_may_be_written_both_ways(did: Path, written: str, asked: str) -> None:
    """Definition and configuration name a tool as the server or as the model does; so may the model."""
    settings = special(did, {"search-all": TEXT_ONLY})
    settings = settings.model_copy(update={"tools": ["search_all"]})
    made = asking([uses((asked, {"t": "x"})), "done"], settings, [written], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[1:] == [{"text": '{"t": "x"}'}]
    assert made.journal.intents[-2][1].action.startswith("tool.it_search_all")


def test_names_that_a_model_cannot_tell_apart(did: Path) -> None:
    """Both at once are refused; one of them is taken as it is written."""
    settings = special(did, {"a-b": TEXT_ONLY, "a_b": TEXT_ONLY})
    both = run(asking(["done"], settings, ["a-b", "a_b"], effect="none").attempt())
    assert isinstance(both, Failed)
    assert "the tools a-b and a_b of MCP server tests have the same name" in both.error.message
    made = asking([uses(("it_a_b", {})), "done"], settings, ["a-b"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    unclear = run(asking(["done"], settings, ["a.b"], effect="none").attempt())
    assert isinstance(unclear, Failed)
    assert "a.b may be a-b or a_b; write which" in unclear.error.message


def test_a_pattern_that_would_backtrack_is_the_servers_own_to_check(did: Path) -> None:
    """The model is shown it; here the arguments are held against the rest of the schema."""
    pattern = r"^(?!\.)[a-z]+$"
    schema = {"type": "object", "properties": {"t": {"type": "string", "pattern": pattern}}}
    settings = special(did, {"send": {"inputSchema": schema}})
    wishes = (("it_send", {"t": "."}), ("it_send", {"t": 1}))
    made = asking([uses(*wishes), "done"], settings, ["send"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    sent, refused = answers(made)[1:]
    assert sent == {"text": '{"t": "."}'}
    assert "is not of type" in refused["refused"]
    assert made.journal.results[0].response["it"][0]["schema"] == schema


@pytest.mark.timeout(60)
def test_a_servers_schema_of_results_stops_nothing(did: Path) -> None:
    """The SDK would hold results against it with patterns that take for ever, on the worker's loop."""
    schema = {"type": "object", "properties": {"t": {"pattern": "^(a+)+$"}}}
    gives = {"structuredContent": {"t": "a" * 60 + "!"}}
    settings = special(did, {"slow": {"outputSchema": schema, "gives": gives}})
    made = asking([uses(("it_slow", {"n": 1})), "done"], settings, ["slow"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[1:] == [{"text": '{"n": 1}'}]


def test_a_tool_that_goes_on_without_an_answer_has_acted(did: Path) -> None:
    """It asked what no person can answer, was dismissed, and answered all the same."""
    asked = {"type": "object", "properties": {"size": {"type": "nonsense"}}}
    settings = stdio(did, ASKS=json.dumps(asked))
    made = asking([uses(("it_ask", {"n": 1})), "done"], settings, ["ask"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    (answer,) = answers(made)[1:]
    assert "is_error" not in answer
    assert answer["text"].startswith("[the MCP server asks a question that no person can answer: ")
    assert answer["text"].endswith('\n{"action": "cancel"}')


def test_a_result_without_its_type_is_complete(did: Path) -> None:
    """The protocol of 2026 says so, of lists and of what tools answer."""
    made = asking(
        [uses(("it_double", {"n": 3})), "done"],
        stdio(did, MODERN=LATEST_MODERN_VERSION),
        ["double"],
        effect="none",
    )
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[1:] == [{"text": "6"}]
    assert did.read_text() == "double\n"


@pytest.mark.parametrize("version", ["", LATEST_MODERN_VERSION])
@pytest.mark.parametrize(
    "result", [{}, {"content": "done"}, {"content": [{"type": "image"}]}, {"content": None}]
)
def test_a_tool_that_has_acted_does_not_fail_by_its_wrapping(
    did: Path, version: str, result: dict[str, Any]
) -> None:
    """A result that is not as the protocol says is a use all the same, which the model must not repeat."""
    special = {"send": {"instead": {"structuredContent": {"id": 7}, **result}}}
    settings = stdio(did, MODERN=version, SPECIAL=json.dumps(special))
    made = asking([uses(("it_send", {"n": 1})), "done"], settings, ["send"], effect="none")
    assert run(made.attempt()) == Succeeded("done")
    (answer,) = answers(made)[1:]
    assert "is_error" not in answer
    assert "was used" in answer["text"]
