"""Libraries that only some users need: where one is missing, the message says how to get it."""

import asyncio
import sys

import pytest

from agent.config.models import ModelSettings
from agent.models import registry
from agent.models.errors import ModelError
from agent.steps.agent.tools.mcp_sessions import load_sdk
from agent.steps.types.errors import DefiniteFailure


def test_a_model_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of a provider is named, and the step is not tried again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "openai"]:
        monkeypatch.delitem(sys.modules, name)
    # Python finds no module whose entry is None.
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "agent.models.openai", raising=False)
    model = registry.model_of("fast", ModelSettings(provider="openai", model="some"))
    with pytest.raises(ModelError, match="model fast needs a library") as raised:
        registry.load(model)
    assert "`python -m pip install openai`" in str(raised.value)
    assert (raised.value.code, raised.value.may_retry) == ("no_library", False)


def test_tools_of_a_server_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library of MCP is named, and the step is not tried again."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(DefiniteFailure, match="`python -m pip install mcp`") as raised:
        asyncio.run(load_sdk())
    assert (raised.value.error.code, raised.value.may_retry) == ("no_library", False)
