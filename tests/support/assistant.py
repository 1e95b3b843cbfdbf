"""The assistant of the examples, with a model of the tests' own behind it."""

import json
from typing import Any

from tests.support.cli import ROOT, Cli
from tests.support.model_servers import KEY, Provider, Say


def assistant_text(model: str = "it") -> str:
    """Return the example's definition with another model as its default."""
    text = (ROOT / "examples" / "assistant.yaml").read_text(encoding="utf-8")
    default = "model: {type: string, default: echo}"
    assert text.count(default) == 1
    return text.replace(default, f"model: {{type: string, default: {model}}}")


def configure(cli: Cli, server: Provider) -> None:
    """Write a configuration with this model, and the assistant."""
    config = {"provider": "openai", "base_url": server.openai_url, "key": "env:KEY_OF_TESTS"}
    prices = {"usd_per_million_in": 1.0, "usd_per_million_out": 1.0}
    lines = [f"{key} = {json.dumps(value)}" for key, value in (config | prices).items()]
    cli.write("config.toml", "[models.it]\n" + "\n".join(lines) + "\n")
    cli.write("workflows/assistant.yaml", assistant_text())
    cli.environment["KEY_OF_TESTS"] = KEY
    cli.environment["AGENT_SERVER__PORT"] = "0"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        cli.environment.pop(name, None)


def said(request: dict[str, Any]) -> list[str]:
    """Return what a request to the model has of the conversation, in order."""
    return [
        str(message["content"]) for message in request["messages"] if message["role"] != "system"
    ]


def repeat(request: dict[str, Any]) -> Say:
    """Answer with the words of the last message."""
    return Say(f"I heard: {said(request)[-1]}")
