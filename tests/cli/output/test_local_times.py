"""Text for people has local times; documents have UTC."""

import re

from tests.support.cli import Cli

ASKING = """\
name: asking
steps:
  ask: {approval: {message: Well?, expires: 2d}}
"""
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*Z")


def test_no_command_prints_utc_to_people(cli: Cli) -> None:
    """Whatever has a time says it in the zone of the machine, or how long ago it was."""
    cli("init")
    cli.write("workflows/asking.yaml", ASKING)
    cli("run", "asking", "--no-input", code=4)
    approval = cli("approvals", "--json").json[0]["id"]
    cli("token", "create", "phone", "--scope", "read", "--expires", "90d")
    memory = str(cli("memory", "add", "a fact", "--scope", "own", "--json").json["id"])
    cli("db", "backup", "copy.db")
    texts = [
        cli("approvals").out,
        cli("approvals", approval).out,
        cli("defer", approval, "1h").out,
        cli("events").out,
        cli("token", "list").out,
        cli("workflows", "show", "asking").out,
        cli("memory", "show", memory).out,
        cli("top", "--once").out,
        cli("db", "restore", "copy.db").out,
    ]
    for text in texts:
        assert text and UTC.search(text) is None, text
    assert UTC.search(cli("approvals", "--json").out)
