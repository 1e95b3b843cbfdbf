"""`agent budget`: a task that used up its budget says so, and goes on with a greater one."""

import pytest

from tests.support.cli import Cli

WORKFLOW = """\
name: asks
budget: {tokens: 300}
steps:
  one: {llm: {model: echo, prompt: hello, max_tokens: 200}}
  two: {depends_on: one, llm: {model: echo, prompt: hello again, max_tokens: 200}}
  three: {depends_on: two, llm: {model: costly, prompt: hello, max_tokens: 200}}
"""

CONFIG = """\
[budget]
daily_seconds = 3600

[models.costly]
provider = "echo"
usd_per_million_in = 1000000.0
usd_per_million_out = 1000000.0
"""


@pytest.mark.process
def test_a_budget_is_shown_and_raised(cli: Cli) -> None:
    """The pause names the command that raises it; raising lets the task go on to its end."""
    cli.write("config.toml", CONFIG)
    cli.write("asks.yaml", WORKFLOW.replace("{tokens: 300}", "{tokens: 240}"))
    cli("init")
    paused = cli("run", "asks.yaml", "--wait", "--json", code=4).json
    assert paused["status"] == "paused"
    assert "agent budget" in paused["pause_reason"]
    task = paused["id"]
    short = task[-8:]
    shown = cli("show", task).out
    assert f"agent budget {short} --tokens N   resumes it" in shown
    assert f"agent resume {short}" not in shown, "it would only be paused again"
    before = cli("budget", task, "--json").json
    assert (before["calls"], before["usd"]) == (1, 0)
    assert before["budgets"][0]["tokens_limit"] == 240
    cli("budget", task, "--tokens", "0", code=2)
    cli("budget", task, "--time", "soon", code=2)
    cli("budget", task, "--step", "nope", "--tokens", "5", code=3)
    with cli.daemon():
        output = cli("budget", task, "--tokens", "100000").out
        assert "resumed" in output
        cli.wait_for(lambda: cli.task(task)["status"] == "succeeded")
    cli("budget", "--tokens", "5", code=2)
    day = cli("budget", "--json").json
    assert (day["seconds_limit"], day["usd_limit"]) == (3600, None)
    assert day["tokens"] > 0 and 0 <= day["seconds"] < 60
    assert "3600.0" in cli("budget").out
    after = cli("budget", task, "--json").json
    assert after["calls"] == 3
    assert after["usd"] > 1
    assert after["budgets"][0]["usd"] == after["usd"]
    assert "3 model calls" in cli("budget", task).out
    cli("budget", task, "--usd", "5", code=3)
