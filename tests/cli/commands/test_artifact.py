"""`agent artifact`: large values by their content."""

import hashlib
import json

from tests.support.cli import Cli

WORKFLOW = """\
name: large
steps:
  give: {python: {call: "textwrap:fill", with: {text: "{{ 'word ' * 40000 }}", width: 100}}}
output: "{{ steps.give.output | length }}"
"""


def test_a_large_output_is_printed_by_its_hash(cli: Cli) -> None:
    """The document shows the value itself; its hash, or the beginning of it, prints it too."""
    cli.write("large.yaml", WORKFLOW)
    task = cli("run", "large.yaml", "--wait", "--json").json
    (step,) = task["steps"]
    assert len(step["output"]) == task["output"] > 100_000
    stored = json.dumps(step["output"], ensure_ascii=False)
    name = hashlib.sha256(stored.encode()).hexdigest()
    assert json.loads(cli("artifact", name[:12]).out) == step["output"]
    cli("artifact", "0" * 64, code=3)
    cli("artifact", "what", code=2)


def test_a_store_that_accepts_nothing_delays_only_its_task(cli: Cli) -> None:
    """The task waits with the reason, and goes on when the store is back."""
    cli.write("large.yaml", WORKFLOW)
    cli.write("config.toml", '[artifacts]\nurl = "kept"\n[server]\nport = 0\n')
    cli.write("workflows/quick.yaml", "name: quick\nsteps: {one: {wait: 1ms}}\n")
    in_the_way = cli.write("kept", "a file where a directory should be")
    with cli.daemon():
        stuck = cli("run", "large.yaml", "--detach", "--json").json["id"]
        cli.wait_for(lambda: cli("tasks", "--json").json[0]["delay"])
        cli("run", "quick", "--wait")
        assert "waits for the artifact store" in cli("tasks").out
        assert "waits for the artifact store" in cli("show", stuck).out
        findings = cli("doctor", "--json", code=3).json["findings"]
        (found,) = [each for each in findings if each["what"] == "artifacts"]
        assert found["state"] == "error"
        assert "Not a directory" in found["message"]
        in_the_way.unlink()
        cli.wait_for(lambda: cli("show", stuck, "--json").json["status"] == "succeeded")
        (found,) = [
            each for each in cli("doctor", "--json").json["findings"] if each["what"] == "artifacts"
        ]
        assert found["state"] == "ok"
