"""A daemon that is killed while a model is thinking: asked again, and both calls are counted."""

import json

import pytest

from tests.support.cli import Cli
from tests.support.model_servers import KEY, Say, Stall, providing

WORKFLOW = """\
name: asks
budget: {tokens: 1000}
defaults: {retry: {max_attempts: 3, delay: 10ms, jitter: false}}
steps:
  first: {llm: {prompt: hello, max_tokens: 200}}
  second: {depends_on: first, llm: {prompt: "{{ steps.first.output }}", max_tokens: 200}}
"""


@pytest.mark.process
def test_a_killed_daemon_forgets_no_spend(cli: Cli) -> None:
    """The answer on record is not asked for again, the lost call is; what it may have cost counts."""
    with providing(Say("one", tokens_in=60, tokens_out=40), Stall(), Say("two")) as server:
        config = {"provider": "openai", "base_url": server.openai_url, "key": "env:KEY_OF_TESTS"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
        text = "[llm]\nmodel = 'it'\n[models.it]\n" + "\n".join(lines) + "\n"
        cli.write("config.toml", text)
        cli.write("workflows/asks.yaml", WORKFLOW)
        cli.environment["KEY_OF_TESTS"] = KEY
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            cli.environment.pop(name, None)
        cli("init")
        with cli.daemon() as daemon:
            task = cli("run", "asks", "--json").json["id"]
            cli.wait_for(lambda: len(server.requests) == 2)
            daemon.kill()
        with cli.daemon():
            cli.wait_for(lambda: cli.task(task)["status"] == "succeeded")
        assert len(server.requests) == 3
        assert [sent["messages"][0]["content"] for sent in server.requests] == [
            "hello",
            "one",
            "one",
        ]
        spent = cli("budget", task, "--json").json
        assert spent["calls"] == 3
        assert (spent["tokens_in"], spent["tokens_out"]) == (70, 45)
        # 115 were used; some 235 were reserved for the unknown call.
        assert 300 < spent["budgets"][0]["tokens"] < 400
        assert KEY not in cli("show", task, "--json").out + cli("events", task, "--json").out
        database = (cli.directory / "data").rglob("*")
        assert not any(KEY.encode() in path.read_bytes() for path in database if path.is_file())
