"""What tools of MCP servers answer besides text: images, progress, and questions to a person."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.config.models import McpSettings
from agent.core.ids import request_hash
from agent.core.state_machine import ApprovalStatus
from agent.models import anthropic, openai
from agent.models.protocol import Image, Message, ToolUse
from agent.steps.agent.tool_content import MAX_BYTES, ContentKeeper, images_of
from agent.steps.types.call_records import RecordedApproval
from agent.steps.types.outcome import Failed, Question, Succeeded, Waiting
from tests.support.agent_loop import answers, trial, uses
from tests.support.attempt import Trial, run

SERVER = str(Path(__file__).parents[3] / "support" / "mcp_server.py")
PLAIN = str(Path(__file__).parents[3] / "support" / "plain_mcp_server.py")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n and more").decode()


def asking(script: list[Any], did: Path, program: str, *tools: str) -> Trial:
    """Return a trial of an agent that may use tools of a program."""
    made = trial(
        script, {"it": {"mcp": {"server": "tests", "tools": list(tools)}, "effect": "none"}}
    )
    args = ["-I", program] if program == PLAIN else [program]
    settings = McpSettings(command=sys.executable, args=args, env={"DID": str(did)})
    made.services.mcp = {"tests": settings}
    return made


def answer(made: Trial, outcome: Any, value: Any) -> Question:
    """Answer the question that an attempt ended with, as a person does."""
    assert isinstance(outcome, Waiting), outcome
    assert isinstance(outcome.on, Question)
    digest = request_hash(outcome.on.request)
    made.claim.setdefault("approvals", []).append(
        RecordedApproval(
            f"a{len(made.claim.get('approvals', []))}",
            "input",
            ApprovalStatus.ANSWERED,
            digest,
            None,
            "ada",
            "terminal",
            None,
            value,
            None,
        )
    )
    return outcome.on


def test_images_are_kept_and_progress_is_logged(tmp_path: Path) -> None:
    """A picture stands in the record of its call; what the server reports is in the step's log."""
    did = tmp_path / "did"
    made = asking([uses(("it_paint", {})), "done"], did, SERVER, "paint")
    assert run(made.attempt()) == Succeeded("done")
    recorded = answers(made)[-1]
    assert recorded["text"].startswith("here it is\n[image 1: image/png, ")
    [part] = recorded["parts"]
    assert images_of(recorded["parts"]) == (Image("image/png", part["data"]),)
    progress = [text for stream, text in made.journal.logs if stream == "progress"]
    assert "tests.paint: 2/2 done\n" in progress


@pytest.mark.parametrize(
    ("program", "tool", "arguments", "value", "result"),
    [
        (SERVER, "order", {"color": "red"}, {"size": 7}, "ordered red in 7"),
        (PLAIN, "ask", {"n": 1}, {"size": 7}, '{"action": "accept", "content": {"size": 7}}'),
    ],
)
def test_a_question_of_a_server_goes_to_a_person(
    tmp_path: Path, program: str, tool: str, arguments: Any, value: Any, result: str
) -> None:
    """The step parks with the server's question, and the tool runs with the person's answer."""
    did = tmp_path / "did"
    did.touch()
    script = [uses((f"it_{tool}", arguments)), "done"]
    made = asking(script, did, program, tool)
    first = run(made.attempt())
    question = answer(made, first, value)
    assert question.kind == "input"
    assert "Which size" in question.message
    assert question.schema is not None
    assert question.schema["anyOf"][0]["properties"]["size"]["type"] == "integer"
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[-1]["text"] == result
    if program == SERVER:
        assert did.read_text().splitlines() == ["order red 7"]


def test_a_person_may_decline(tmp_path: Path) -> None:
    """The server gets that answer, and the model sees what the tool answers then."""
    did = tmp_path / "did"
    did.touch()
    made = asking([uses(("it_ask", {"n": 1})), "done"], did, PLAIN, "ask")
    answer(made, run(made.attempt()), "decline")
    assert run(made.attempt()) == Succeeded("done")
    assert answers(made)[-1]["text"] == '{"action": "decline"}'


def test_an_agents_own_endpoint_is_refused(tmp_path: Path) -> None:
    """A model must not get the rights of a token by way of the agent's own MCP server."""
    from agent.steps.attempt.services import Limits

    made = trial(
        ["done"],
        {"it": {"mcp": {"server": "own", "tools": ["approve"]}}},
        limits=Limits(own_urls=("http://127.0.0.1:8420",)),
    )
    made.services.mcp = {"own": McpSettings(url="http://127.0.0.1:8420/mcp")}
    outcome = run(made.attempt())
    assert isinstance(outcome, Failed)
    assert "is this agent itself" in outcome.error.message


def test_content_is_bounded_and_checked() -> None:
    """Too much, bad base64 and mislabelled images are named to the model and shown to none."""
    keeper = ContentKeeper()
    assert keeper.add("image", "image/png", PNG) == "[image 1: image/png, 17 bytes]"
    assert keeper.add("audio", None, "!") == "[audio: its data is not base64]"
    large = base64.b64encode(bytes(MAX_BYTES)).decode()
    assert "too large" in keeper.add("image", "image/png", large)
    assert keeper.add("image", "image/jpeg", PNG).startswith("[image 2")
    assert images_of(keeper.parts) == (Image("image/png", PNG),)
    assert images_of(None) == ()


TURN = (
    Message("user", "look"),
    Message("assistant", "", (ToolUse("u1", "it", {}), ToolUse("u2", "it", {}))),
    Message("tool", "seen", tool_use_id="u1", images=(Image("image/png", PNG),)),
    Message("tool", "nothing", tool_use_id="u2"),
)


def test_images_go_to_models_that_can_see() -> None:
    """Anthropic takes them in the tool's result, OpenAI in a message after all results."""
    *_, results = anthropic._messages(TURN, can_see=True)
    first, second = results["content"]
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert first["content"][1] == {"type": "image", "source": source}
    assert second["content"] == "nothing"
    written = list(openai._messages(TURN, can_see=True))
    assert [each["role"] for each in written] == ["user", "assistant", "tool", "tool", "user"]
    assert written[-1]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"


def test_models_that_cannot_see_get_the_text_alone() -> None:
    """The text names the image; its bytes are not sent."""
    assert PNG not in str(list(anthropic._messages(TURN, can_see=False)))
    assert PNG not in str(list(openai._messages(TURN, can_see=False)))
