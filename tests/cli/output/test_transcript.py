"""An agent's loop for people: every call while it goes on, and the whole conversation afterwards."""

import json

from tests.support.cli import Cli

SCRIPT = [
    {"tool_uses": [{"name": "notes_read", "arguments": {"path": "note"}}], "tokens_out": 7},
    {"text": "it is read", "tokens_in": 100, "tokens_out": 3},
]
WORKFLOW = f"""\
name: reads
steps:
  look:
    agent:
      model: priced
      goal: |
        read it
        ```echo
        {json.dumps(SCRIPT)}
        ```
      tools: {{notes: {{files: {{directory: notes}}}}}}
  plain: {{depends_on: look, shell: {{argv: [echo, hello], effect: none}}}}
"""
CONFIG = """\
[models.priced]
provider = "echo"
usd_per_million_in = 1000.0
usd_per_million_out = 1000.0
"""


def test_a_loop_is_shown_as_it_goes_and_afterwards(cli: Cli) -> None:
    """Turns, uses of tools, tokens and money; what comes from outside cannot steer a terminal."""
    cli.write("config.toml", CONFIG)
    cli.write("notes/note", "buy \x1b[2Jmilk")
    cli.write("reads.yaml", WORKFLOW)
    watched = cli("run", "reads.yaml", "--wait")
    lines = [line for line in watched.err.splitlines() if " #" in line]
    assert [line.split(",")[0].strip() for line in lines] == [
        "look #1 model turn 1",
        "look #2 tool.notes_read",
        "look #3 model turn 2",
    ]
    assert "calls notes_read" in lines[0] and "it is read" in lines[2]
    assert "2 model calls, 1 tool call," in watched.out

    (task,) = cli("tasks", "--json").json
    shown = cli("show", task["id"], "look")
    assert "buy \\x1b[2Jmilk" in shown.out and "\x1b" not in shown.out + watched.err
    assert "read it" in shown.out and "100 tokens in, 3 out, $0.103000" in shown.out
    assert "model priced, stopped: tool_use" in shown.out
    document = cli("show", task["id"], "look", "--json").json
    assert [call["action"] for call in document["calls"]] == ["model", "tool.notes_read", "model"]
    assert document["usage"]["tokens_out"] == 10

    whole = cli("show", task["id"], "--json").json
    assert whole["usage"] == document["usage"] == whole["steps"][0]["usage"]
    assert whole["steps"][1]["usage"] is None
    assert "2 model calls" in cli("show", task["id"]).out
    assert "attempt 1 of" in cli("show", task["id"], "plain").out
    cli("show", task["id"], "nothing", code=3)
    watched = cli("watch", task["id"])
    assert "look #3 model turn 2" in watched.err
