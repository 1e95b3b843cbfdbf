"""`agent token`: tokens that end, and the audit log of what was done at a terminal."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from agent.core.logs.audit import NAME
from tests.support.cli import Cli


def _audited(cli: Cli) -> list[dict[str, Any]]:
    (path,) = cli.directory.rglob(NAME)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_token_that_ends(cli: Cli) -> None:
    """The expiry is printed at creation and in the list; `never` without one."""
    cli("init")
    made = cli("token", "create", "phone", "--scope", "read", "--expires", "90d", "--json").json
    cli("token", "create", "laptop", "--scope", "admin")
    left = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
    assert timedelta(days=89) < left <= timedelta(days=90)
    phone, laptop = cli("token", "list", "--json").json
    assert (phone["expires"], laptop["expires"]) == (made["expires"], None)
    shown = cli("token", "list").out
    assert made["expires"][:10] in shown
    assert "never" in shown
    cli("token", "revoke", "phone")
    assert [entry["name"] for entry in cli("token", "list", "--json").json] == ["laptop"]
    lines = _audited(cli)
    assert [line["what"] for line in lines] == ["token create", "token create", "token revoke"]
    assert lines[0]["subject"] == "phone"
    assert lines[0]["who"].startswith("terminal:")
    assert made["token"] not in str(lines)


def test_an_end_that_is_none(cli: Cli) -> None:
    """What is no duration, or none ahead, makes no token."""
    cli("init")
    for given in ("soon", "0s", "-1d"):
        refused = cli("token", "create", "x", "--scope", "read", f"--expires={given}", code=2)
        assert "--expires" in refused.err
    assert cli("token", "list", "--json").json == []


def test_commands_at_a_terminal_are_recorded(cli: Cli) -> None:
    """A command on the database leaves its line, whether it was carried out or refused."""
    cli("init")
    cli.write("ask.yaml", "name: ask\nsteps: {one: {wait: {signal: go}}}\n")
    task_id = cli("run", "ask.yaml", "--detach", "--json").json["id"]
    cli("pause", task_id)
    cli("cancel", task_id)
    cli("pause", task_id, code=3)
    paused, canceled, refused = _audited(cli)
    assert (paused["what"], paused["task"], paused["outcome"]) == ("pause", task_id, "done")
    assert canceled["what"] == "cancel"
    assert refused["outcome"].startswith("refused: ")
    assert {line["from"] for line in (paused, canceled, refused)} == {"command line"}
