"""`agent state`: what the command line and a remote agent show is the same."""

import pytest

from tests.support.cli import Cli

WORKFLOW = """\
name: counts
steps:
  count:
    shell: {argv: [echo, "{{ state.counter | default(0) }}"], effect: none}
    set_state: {counter: "{{ state.counter | default(0) + 1 }}", last: "{{ output.stdout }}"}
"""


@pytest.mark.process
def test_values_are_listed_shown_and_changed(cli: Cli) -> None:
    """A person sees what steps wrote, and sets what the next task reads."""
    cli.write("counts.yaml", WORKFLOW)
    cli("init")
    assert "no values" in cli("state").out
    cli("run", "counts.yaml", "--wait")
    listed = cli("state", "--json").json
    assert [(value["name"], value["value"]) for value in listed] == [
        ("counter", 1),
        ("last", "0\n"),
    ]
    assert "41" in cli("state", "set", "counter", "41").out + cli("state").out
    done = cli("run", "counts.yaml", "--wait", "--json").json
    assert done["steps"][0]["state"]["read"]["counter"] == {
        "version": 2,
        "value": 41,
        "exists": True,
    }
    shown = cli("show", done["id"]).out
    assert "state: count read counter = 41 (version 2); wrote counter (version 3)" in shown
    history = cli("state", "show", "counter", "--json").json["history"]
    assert [version["value"] for version in history] == [42, 41, 1]
    assert history[1]["written_by"].startswith("terminal:")
    cli("state", "set", "counter", "1", "--if-version", "2", code=3)
    cli("state", "set", "rate", "some text", "--shared")
    assert [value["value"] for value in cli("state", "--shared", "--json").json] == ["some text"]
    cli("state", "set", "counter", "7", "--shared")
    assert "give --workflow W or --shared" in cli("state", "delete", "counter", code=3).err
    cli("state", "delete", "counter", "--workflow", "counts")
    assert "(deleted)" in cli("state", "show", "counter", "--workflow", "counts").out
    cli("state", "set", "x", "1", "--workflow", "unknown", code=3)
    cli("state", "--workflow", "counts", "--shared", code=2)
