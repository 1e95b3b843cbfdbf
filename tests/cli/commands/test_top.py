"""`agent top`: once, as JSON, and the same over HTTP."""

from tests.support.cli import Cli

QUICK = """\
name: quick
steps:
  one: {shell: {argv: [echo], effect: none}}
"""


def test_it_is_printed_once_without_a_terminal(cli: Cli) -> None:
    """Nothing runs here: the counts say so."""
    cli("init")
    cli.write("quick.yaml", QUICK)
    cli("run", "quick.yaml")
    assert "tasks: 0 running" in cli("top").out
    load = cli("top", "--once", "--json").json
    assert load["tasks"] == {"succeeded": 1}
    assert (load["workers"], load["slots"]["taken"], load["slowest"]) == ([], 0, [])
    assert cli.run_any("top", "--interval", "0").code == 2
