"""Every package stands in each contract that forbids imports, or is an exception that says why."""

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent.parent
_DECIDE: Final = "people and their surfaces decide; the contract is about what models can reach"
EXCEPTIONS: Final[dict[str, dict[str, str]]] = {
    "Only the store speaks to databases": {"store": "it is the store"},
    "Only the command line draws on terminals": {"cli": "it is the command line"},
    "Only the connectors speak to providers of models": {"models": "it holds the connectors"},
    "Only one module speaks OpenTelemetry": {
        "telemetry": "its module `otlp` is that one; the others stand in the contract by name"
    },
    "Only the server speaks HTTP to callers": {
        "server": "it is the server",
        "mcp": "its endpoint is a part of the server's application",
    },
    "Tools of models decide nothing for people": dict.fromkeys(
        (
            "approvals", "bootstrap", "channels", "cli", "config", "core", "daemon", "mcp", "models", "overview",
            "queue", "recovery", "restore", "server", "store", "tasks", "telemetry", "triggers", "upgrade",
            "workflows",
        ),
        _DECIDE,
    ),
}  # fmt: skip


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return [contract for contract in contracts if contract["type"] == "forbidden"]


def _packages() -> set[str]:
    modules = {path.stem for path in (ROOT / "agent").glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in (ROOT / "agent").glob("*/__init__.py")}


def test_each_contract_has_its_exceptions() -> None:
    """A contract that was renamed, or went, takes its exceptions with it."""
    assert {contract["name"] for contract in _contracts()} == set(EXCEPTIONS)


@pytest.mark.parametrize("contract", _contracts(), ids=lambda contract: contract["name"])
def test_no_package_slips_through_a_contract(contract: dict[str, Any]) -> None:
    """A new package is bound by each contract, or its exception has a reason."""
    bound = {name.removeprefix("agent.") for name in contract["source_modules"]}
    exceptions = EXCEPTIONS[contract["name"]]
    assert _packages() - bound == set(exceptions)
    assert all(exceptions.values())
